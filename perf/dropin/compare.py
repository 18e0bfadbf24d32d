#!/usr/bin/env python3
"""compare.py: trains with a script on sennit and on gloo or MPI, 4 processes, and compares the losses.

usage: compare.py [--mpi SENNIT] SCRIPT [ARGUMENT...]. SCRIPT takes the backend's name first and prints "loss STEP
VALUE". The backends are gloo and sennit of torch.distributed, where PYTHONPATH names the package sennit_torch. With
--mpi the script is an MPI program for Open MPI's mpirun, and SENNIT, the command, puts sennit before MPI. Run it with
the Python that has what the script needs. Fails where a loss differs by more than 1e-4 of it, where a script printed
none, or another number of them; and with --mpi where a process did not make all its collectives on sennit.
"""

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import time

TOLERANCE = 1e-4  # of a loss in float32
PROCESSES = 4
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(PROCESSES)]


def command_of(backend, options):
    script = [options.script, backend, *options.arguments]
    if not options.mpi:
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES), *script]
    before = [options.mpi, "exec", "--mpi", "-v", "--"] if backend == "sennit" else []
    return [*before, *MPIRUN, sys.executable, *script]


def losses(backend, options):
    began = time.monotonic()
    done = subprocess.run(command_of(backend, options), env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True,
                          text=True)
    output = done.stdout + done.stderr
    if done.returncode != 0:
        sys.exit(f"{output}\n{backend}: status {done.returncode}")
    found = [float(value) for value in re.findall(r"(?m)^loss \d+ (\S+)$", done.stdout)]
    if not found or not all(map(math.isfinite, found)):
        sys.exit(f"{output}\n{backend}: {'a loss is no number' if found else 'no losses'}")
    print(f"{backend}: {len(found)} losses from {found[0]:.6g} to {found[-1]:.6g}, {time.monotonic() - began:.1f} s")
    if options.mpi and backend == "sennit":
        made = [(int(ours), int(others)) for ours, others in
                re.findall(r"collectives by sennit: (\d+), by MPI itself: (\d+)", output)]
        if len(made) != PROCESSES or not all(ours and not others for ours, others in made):
            sys.exit(f"{output}\nsennit: not all processes made all their collectives there")
        print("collectives by sennit, of each process: " + ", ".join(str(ours) for ours, _ in made))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", metavar="SENNIT", help="the command sennit; the script is an MPI program")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not os.path.exists(options.script):
        parser.error(f"{options.script}: no such script")
    if "--mpi" in options.arguments:
        parser.error("--mpi goes before the script")
    if options.mpi is not None:
        for program in (options.mpi, MPIRUN[0]):
            if not shutil.which(program):
                parser.error(f"{program}: no such program")
    without, sennit = (losses(backend, options) for backend in ("mpi" if options.mpi else "gloo", "sennit"))
    if len(without) != len(sennit):
        sys.exit(f"sennit: {len(sennit)} losses in place of {len(without)}")
    worst = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(without, sennit, strict=True))
    print(f"largest difference: {worst:.2g} of the loss")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
