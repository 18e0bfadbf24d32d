#!/usr/bin/env python3
"""compare.py: trains with a script on sennit and on what it would have without, 4 processes, and compares the losses.

usage: compare.py [--mpi SENNIT] SCRIPT [ARGUMENT...]. SCRIPT takes the backend's name first and prints "loss STEP
VALUE". The backends are gloo and sennit of torch.distributed; with --mpi the script is an MPI program, run by mpirun,
and SENNIT, the command, puts sennit before MPI. Run it with the Python that has what the script needs, and PYTHONPATH
naming the package sennit_torch. Fails where a loss differs by more than 1e-4 of it, where a script printed none, or
where a process on sennit made none of its collectives there.
"""

import argparse
import os
import re
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
    if not found:
        sys.exit(f"{output}\n{backend}: no losses")
    print(f"{backend}: {len(found)} losses from {found[0]:.6g} to {found[-1]:.6g}, {time.monotonic() - began:.1f} s")
    if options.mpi and backend == "sennit":
        made = [(int(ours), int(others)) for ours, others in
                re.findall(r"collectives by sennit: (\d+), by MPI itself: (\d+)", output)]
        if len(made) != PROCESSES or not all(ours for ours, _ in made):
            sys.exit(f"{output}\nsennit: not all processes made their collectives there")
        print("collectives of a process: " + ", ".join(f"{ours} by sennit and {others} by MPI" for ours, others in made))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", metavar="SENNIT", help="the command sennit; the script is an MPI program")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    without, sennit = (losses(backend, options) for backend in ("mpi" if options.mpi else "gloo", "sennit"))
    worst = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(without, sennit))
    print(f"largest difference: {worst:.2g} of the loss")
    sys.exit(len(without) != len(sennit) or worst > TOLERANCE)


if __name__ == "__main__":
    main()
