#!/usr/bin/env python3
"""noise.py: how far the times of clean runs on an emulated tree are from the usual ones, which is what injections' noise is.

usage: noise.py [--job COLLECTIVE] [--seconds S] [--racks N] [--hosts N] [--oversubscription X]

Runs a job of one rank a host on an emulated tree, in which nothing is slow, as faults.py does, and reads what its ranks
have recorded. Two lines a job: how far whole calls are from the usual one, and how far each edge of a call is from what it
usually takes, over what all of that call are. The figures are logarithms: those that 1% to 99% of them are below, and the
square root of the mean of their squares.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile
import time

import faults

SIZES = {"all_reduce": "4M", "all_gather": "1M", "reduce_scatter": "4M"}


def measure(job, tree, options, head):
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as log:
        recordings = pathlib.Path(folder) / "recordings"
        recordings.mkdir()
        variables = [f"SENNIT_TRACE={recordings}", "SENNIT_TRACE_EVENTS=262144"]
        words = ["sennit", "bench", job, "-b", SIZES[job], "-e", SIZES[job], "-n", "100000", "-w", "4"]
        with faults.under_way(faults.on_hosts(tree, "env", *variables, *words), log, tree) as under_way:
            time.sleep(options.seconds)
            faults.must_go_on(under_way, log)
        subprocess.run(["spread_of_recordings", *head, str(recordings)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", metavar="COLLECTIVE", choices=SIZES, action="append", help="this one alone; may be given again")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--racks", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--oversubscription", type=float, default=4)
    options = parser.parse_args()
    with faults.tree_of(f"noise{os.getpid()}", options) as tree:
        for number, job in enumerate(options.job or SIZES):
            measure(job, tree, options, ["--head"] if number == 0 else [])


if __name__ == "__main__":
    main()
