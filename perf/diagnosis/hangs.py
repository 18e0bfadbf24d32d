#!/usr/bin/env python3
"""hangs.py: how soon every rank of a job that hangs says who is behind.

usage: hangs.py [KIND...] [--trials N] [--racks N] [--hosts N] [--seed N]

Brings a tree up and runs `hangs` on it, one rank a host, N times for each kind of hang, with another rank behind each
time. A line a kind: in how many trials every rank that could was told the right rank and the right cause, and how long
after the stall threshold (SENNIT_STALL, 0.5 s) that was, the median and the longest of all ranks.

  absent    a rank does not make the call
  other     a rank calls on another communicator of the same ranks
  stopped   a rank's process is stopped (SIGSTOP); not rank 0, which is the one that asks
  lost      a message leaves and does not arrive (SENNIT_FAULTS)
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess

STALL_S = 0.5
CAUSES = {"absent": "not_called", "other": "waits_itself", "stopped": "silent", "lost": "lost_message"}


def trial(kind, rank, ranks, tree, random_):
    """Whether all ranks were told rightly, and how long after the threshold each was."""
    environment = os.environ.copy()
    if kind == "lost":
        environment["SENNIT_FAULTS"] = f"rank={rank},transport=tcp,drop={random_.randint(100, 200)}"
    words = ["sennit", "emulate", "run", "--name", tree, "--timeout", "60", "--", "hangs", "--kind", kind, "--rank", str(rank)]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment)
    told = {}
    for who, seconds, text in re.findall(r"told (\d+) ([\d.]+) (\{.*\})", ran.stderr):
        told[int(who)] = (float(seconds) - STALL_S, json.loads(text))
    expected = set(range(ranks)) - ({rank} if kind == "stopped" else set())
    right = expected <= set(told)
    for who in expected & set(told):
        verdict = told[who][1]
        blamed = verdict["blamed_ranks"] == [rank] or kind == "other" and rank in verdict["blamed_ranks"]
        right = right and blamed and verdict["cause"] == CAUSES[kind]
    if not right:
        print(f"{kind}, rank {rank}: {ran.stderr}", flush=True)
    return right, [told[who][0] for who in expected & set(told)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--racks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [kind for kind in options.kinds if kind not in CAUSES]
    if unknown:
        parser.error(f"{unknown[0]}: expected one of {', '.join(CAUSES)}")
    random_ = random.Random(options.seed)
    ranks = options.racks * options.hosts
    tree = f"hangs{os.getpid()}"
    up = ["sennit", "emulate", "up", "--name", tree, "--racks", str(options.racks), "--hosts", str(options.hosts), "--nic",
          "400Mbit/s", "--oversubscription", "4"]
    subprocess.run(up, check=True, capture_output=True)
    try:
        print("| hang | trials | right on all ranks | told after the threshold, median | longest |\n|---|---|---|---|---|")
        for kind in options.kinds or CAUSES:
            results = [trial(kind, random_.randint(1 if kind == "stopped" else 0, ranks - 1), ranks, tree, random_)
                       for _ in range(options.trials)]
            times = [seconds for _, all_times in results for seconds in all_times] or [float("nan")]
            print(f"| {kind} | {options.trials} | {sum(right for right, _ in results)} | {statistics.median(times):.2f} s "
                  f"| {max(times):.2f} s |", flush=True)
    finally:
        subprocess.run(["sennit", "emulate", "down", "--name", tree], check=True, capture_output=True)


if __name__ == "__main__":
    main()
