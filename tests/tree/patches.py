#!/usr/bin/env python3
"""patches.py: every patch of the tree still applies to it.

A patch puts a defect back that a test is to find (tests/random/defects). Where the code that it changes has changed,
it is to be written anew.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    patches = sorted(path for path in (ROOT / "tests").rglob("*.patch"))
    stale = 0
    for patch in patches:
        tried = subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True)
        if tried.returncode != 0:
            stale += 1
            print(f"{patch.relative_to(ROOT)}: does not apply, write it anew: {tried.stderr.strip()}")
    if not patches:
        print("no patches were found below tests/")
        return 1
    print(f"{len(patches)} patches, {stale} of them stale")
    return 1 if stale else 0


sys.exit(main())
