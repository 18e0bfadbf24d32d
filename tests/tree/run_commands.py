#!/usr/bin/env python3
"""run_commands.py: which commands ./run takes together, and that none goes on behind what failed. -h stands last, so
that it starts none of them.

Steps (test, sanitize, style) go together; any other command that is not alone must be refused before anything is done,
since a command that is dropped in silence looks as if it had gone well. Nor may `./run torch` test what an earlier run
has built where CMake fails now: it is run in a folder of its own, with programs that do nothing but CMake, which fails.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOGETHER = ("test", "test sanitize style", "style test", "build", "soak 5", "test --no-install")
REFUSED = ("build clean", "test torch", "torch test", "mpi nccl", "sanitize style demo")
USAGE_STATUS = 0
REFUSED_STATUS = 2


def put(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def goes_on_behind_cmake():
    """Whether `./run torch` tests anything where CMake's first step fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(ROOT / "run", folder / "run")
        put(folder, "bin/dpkg-query", "#!/bin/sh\necho install ok installed\n")
        put(folder, "bin/cmake", "#!/bin/sh\n[ \"$1\" != --preset ]\n")
        put(folder, "build/torch/venv/bin/python3", "#!/bin/sh\nexit 0\n")
        path = f"{folder}/bin:{os.environ['PATH']}"
        ended = subprocess.run([str(folder / "run"), "torch", "--no-install"], capture_output=True, text=True, check=False,
                               env=os.environ | {"PATH": path})
    return ended.returncode == 0 or "torch:" in ended.stdout


def main():
    wrong = 0
    if goes_on_behind_cmake():
        print("run: `./run torch` goes on where CMake has failed")
        wrong += 1
    for words, status in [(w, USAGE_STATUS) for w in TOGETHER] + [(w, REFUSED_STATUS) for w in REFUSED]:
        ended = subprocess.run([str(ROOT / "run"), *words.split(), "-h"], capture_output=True, text=True, check=False)
        said = "go together" in ended.stderr
        if ended.returncode != status or said != (status == REFUSED_STATUS):
            print(f"run: `./run {words} -h` ended with {ended.returncode}, expected {status}: {ended.stderr}")
            wrong += 1
    print(f"{wrong} commands or combinations of them that ./run takes for others, or for done")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
