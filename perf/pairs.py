#!/usr/bin/env python3
"""Two builds, or one build under two settings, side by side: `sennit bench` in turns, ratios pair by pair.

    perf/pairs.py --before OLD/bin/sennit --after NEW/bin/sennit              # did anything become slower?
    perf/pairs.py --after-set SENNIT_WIRE=sealed --before-set SENNIT_WIRE=plain --sizes 16000000 --where tree

Each pair runs before and after, every second pair the other way round, so what drifts on the machine meets both. A pair's ratio
is after / before of the medians that `sennit bench` prints; printed is the median of the ratios, with the middle half of them.
--where host is --ranks processes on this host, tree the emulated tree of 2 racks of 4 hosts at 7:1 (needs what `sennit emulate`
needs). Exit status 1: a median is above --limit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

TREE = "pairs"


def run(command, settings):
    environment = os.environ | dict(setting.split("=", 1) for setting in settings)
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300).stdout


def measured(arguments, where, sennit, settings):
    """Microseconds by size, each size in a job of its own."""
    times = {}
    for size in arguments.sizes.split(","):
        bench = ["bench", arguments.collective, "-b", size, "-e", size, "-n", arguments.iterations, "-c", "0", "--json", "-"]
        if where == "host":
            command = [sennit, *bench, "--ranks", arguments.ranks]
        else:
            command = [sennit, "emulate", "run", "--name", TREE, "--", sennit, *bench]
        rows = [json.loads(line) for line in run(command, settings).splitlines() if line.startswith("{")]
        times[size] = rows[0]["time_us"]
    return times


def compare(arguments, where):
    """Prints a line a size; true where all medians are within the limit."""
    sides = {"before": (arguments.before, arguments.before_set), "after": (arguments.after, arguments.after_set)}
    ratios, first = {}, {}
    for turn in range(arguments.pairs):
        pair = {}
        for side in sorted(sides, reverse=turn % 2 == 0):
            pair[side] = measured(arguments, where, *sides[side])
        for size, before in pair["before"].items():
            ratios.setdefault(size, []).append(pair["after"][size] / before)
            first.setdefault(size, []).append(before)
    fine = True
    for size, values in ratios.items():
        low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * values
        verdict = "" if median <= arguments.limit else "  above the limit"
        fine &= median <= arguments.limit
        print(f"{where:5} {arguments.collective} {size:>9}  before {statistics.median(first[size]):10.1f} us"
              f"  after / before {median:.3f}  ({low:.3f} to {high:.3f}, {len(values)} pairs){verdict}", flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="build/release/bin/sennit", help="the program that is held against")
    parser.add_argument("--after", default="build/release/bin/sennit")
    parser.add_argument("--before-set", action="append", default=[], metavar="NAME=VALUE", help="in its environment")
    parser.add_argument("--after-set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--sizes", default="8,1K,1M")
    parser.add_argument("--where", default="host,tree")
    parser.add_argument("--ranks", default="4", help="processes on this host")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--iterations", default="100")
    parser.add_argument("--limit", type=float, default=1.03)
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error(f"--pairs {arguments.pairs}: without a pair nothing is held against the limit")
    unknown = [where for where in arguments.where.split(",") if where not in ("host", "tree")]
    if unknown:
        parser.error(f"--where {unknown[0]}: expected host, tree or host,tree")
    fine = True
    for where in arguments.where.split(","):
        if where == "tree":
            run([arguments.after, "emulate", "up", "--name", TREE, "--racks", "2", "--hosts", "4", "--nic", "400Mbit/s",
                 "--oversubscription", "7"], [])
        try:
            fine &= compare(arguments, where)
        finally:
            if where == "tree":
                run([arguments.after, "emulate", "down", "--name", TREE], [])
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
