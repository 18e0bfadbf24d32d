#!/usr/bin/env python3
"""compare.py: trains with a script on gloo and on sennit, 4 processes, and compares the losses.

usage: compare.py SCRIPT [ARGUMENT...]. SCRIPT takes the backend's name first and prints "loss STEP VALUE". Run it with the Python that has what the script
needs, and PYTHONPATH naming the package sennit_torch. Fails where a loss differs by more than 1e-4 of it, or where a
script printed none.
"""

import os
import re
import subprocess
import sys
import time

TOLERANCE = 1e-4  # of a loss in float32


def losses(backend):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", sys.argv[1], backend, *sys.argv[2:]]
    began = time.monotonic()
    done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\n{backend}: status {done.returncode}")
    found = [float(value) for value in re.findall(r"(?m)^loss \d+ (\S+)$", done.stdout)]
    if not found:
        sys.exit(f"{done.stdout}{done.stderr}\n{backend}: no losses")
    print(f"{backend}: {len(found)} losses from {found[0]:.6g} to {found[-1]:.6g}, {time.monotonic() - began:.1f} s")
    return found


gloo, sennit = losses("gloo"), losses("sennit")
worst = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(gloo, sennit))
print(f"largest difference: {worst:.2g} of the loss")
sys.exit(len(gloo) != len(sennit) or worst > TOLERANCE)
