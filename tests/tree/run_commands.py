#!/usr/bin/env python3
"""run_commands.py: which commands ./run takes together. -h stands last, so that it starts none of them.

Steps (test, sanitize, style) go together; any other command that is not alone must be refused before anything is done,
since a command that is dropped in silence looks as if it had gone well.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOGETHER = ("test", "test sanitize style", "style test", "build", "soak 5", "test --no-install")
REFUSED = ("build clean", "test torch", "torch test", "mpi nccl", "sanitize style demo")
USAGE_STATUS = 0
REFUSED_STATUS = 2


def main():
    wrong = 0
    for words, status in [(w, USAGE_STATUS) for w in TOGETHER] + [(w, REFUSED_STATUS) for w in REFUSED]:
        ended = subprocess.run([str(ROOT / "run"), *words.split(), "-h"], capture_output=True, text=True, check=False)
        said = "go together" in ended.stderr
        if ended.returncode != status or said != (status == REFUSED_STATUS):
            print(f"run: `./run {words} -h` ended with {ended.returncode}, expected {status}: {ended.stderr}")
            wrong += 1
    print(f"{wrong} combinations of commands that ./run takes for others")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
