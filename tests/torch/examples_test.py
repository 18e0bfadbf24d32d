"""The PyTorch examples of python/examples, under torchrun with no other variable."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"


def run(example, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", FOLDER / example, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    ).stdout


class Examples(unittest.TestCase):
    def test_ddp(self):
        self.assertLess(float(run("torch_ddp.py").split()[1]), 10)

    def test_fsdp2(self):
        self.assertLess(float(run("torch_fsdp2.py").split()[1]), 1)

    def test_dtensor(self):
        self.assertLess(float(run("torch_dtensor.py").split()[2]), 1e-4)

    def test_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("torch_checkpoint.py", folder), "step 7, weight 3\n")


if __name__ == "__main__":
    unittest.main()
