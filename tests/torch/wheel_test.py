#!/usr/bin/env python3
"""The wheel that python/README.md's commands build, in environments of their own: with this interpreter's PyTorch it has
sennit_torch, which trains under torchrun; without PyTorch it has sennit alone."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "torch" / "wheel"
# As deep as build/release, whose objects the compiler cache then has.
DEEP = ROOT / "build"
# One name of the compiler, so that its cache serves this build as well, and nothing of the build tree's.
ENVIRONMENT = {"CC": "cc", "CXX": "c++"} | os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONPATH", None)
NUMPY = pathlib.Path(__import__("numpy").__file__).parents[1]


def run(*command):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=1800, env=ENVIRONMENT, cwd=BUILD
    ).stdout


def environment(name, packages):
    """Its interpreter; it sees the packages of another folder, and none of the system's."""
    folder = BUILD / name
    python = folder / "bin" / "python3"
    if not python.exists():
        run(sys.executable, "-m", "venv", folder)
        own = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        (own / "others.pth").write_text(f"{packages}\n")
    return python


def installed(python, *options):
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "scikit-build-core>=0.10", "pybind11>=2.10")
    wheels = BUILD / python.parents[1].name / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    run(python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", wheels, *options, ROOT / "python")
    (wheel,) = wheels.glob("sennit-*.whl")
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel)
    return wheel


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        BUILD.mkdir(parents=True, exist_ok=True)

    def test_with_pytorch(self):
        python = environment("with_torch", sysconfig.get_path("purelib"))
        installed(python, f"--config-settings=build-dir={DEEP}/wheel_with_torch")
        loss = run(
            python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            ROOT / "python" / "examples" / "torch_ddp.py",
        )  # fmt: skip
        self.assertLess(float(loss.split()[1]), 10)
        folder = run(python, "-c", "import sennit_torch; print(sennit_torch.__file__)")
        self.assertIn(str(BUILD), folder)
        # PyTorch looks for the backend itself.
        run(
            python, "-c",
            "import torch, torch.distributed as d\n"
            "if tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 15):\n"
            "    d.init_process_group('sennit', store=d.HashStore(), rank=0, world_size=1)\n"
            "    d.all_reduce(torch.ones(1))\n",
        )  # fmt: skip

    def test_without_pytorch(self):
        # numpy alone, of the packages that the other environment has.
        only = BUILD / "numpy_alone"
        only.mkdir(exist_ok=True)
        for name in "numpy", "numpy.libs":
            if (NUMPY / name).exists() and not (only / name).exists():
                (only / name).symlink_to(NUMPY / name)
        python = environment("without_torch", only)
        installed(python, f"--config-settings=build-dir={DEEP}/wheel_without")
        code = "import numpy, sennit; c = sennit.init_local(1)[0]; c.all_reduce(x := numpy.ones(3)); print(x.sum())"
        self.assertEqual(run(python, "-c", code), "3.0\n")
        found = subprocess.run([python, "-c", "import sennit_torch"], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertIn("No module named 'sennit_torch'", found.stderr)


if __name__ == "__main__":
    unittest.main()
