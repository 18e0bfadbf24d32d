#!/usr/bin/env python3
"""overhead.py: what part of a loop of collectives its ranks spend on recording what they do: events times what one costs.

usage: overhead.py [--ranks N]

What an event costs core_benchmark measures, in the same run. Ranks of one host call all_reduce of each size again and
again. A line a size: calls, events of a rank, and the part of the loop's time.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

LOOPS = {"8": 200_000, "4K": 100_000, "64K": 20_000, "1M": 1000, "16M": 50}  # calls of each size


def ns_of_event():
    words = ["core_benchmark", "--benchmark_filter=BM_TraceEvent", "--benchmark_format=json", "--benchmark_repetitions=5"]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return next(one["cpu_time"] for one in found["benchmarks"] if one["name"] == "BM_TraceEvent_median")


def loop(ranks, size, iterations):
    """Seconds that it took, and events of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        subprocess.run(["sennit", "bench", "all_reduce", "--ranks", str(ranks), "-b", size, "-e", size, "-n", str(iterations),
                        "-w", "0"], check=True, capture_output=True, env=os.environ | {"SENNIT_TRACE": folder})
        took = time.monotonic() - began
        told = subprocess.run(["sennit", "diagnose", "--json", "-", folder], capture_output=True, text=True).stdout
        return took, [rank["events"] for rank in json.loads(told)["ranks"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    event_ns = ns_of_event()
    print(f"An event costs {event_ns:.1f} ns; {options.ranks} ranks.\n")
    print("| all-reduce | calls | events of a rank, with the barrier before each call | part of the time |\n|---|---|---|---|")
    for size, iterations in LOOPS.items():
        start, before = loop(options.ranks, size, 1)
        took, after = loop(options.ranks, size, 1 + iterations)
        events = max(a - b for a, b in zip(after, before))
        calls = 2 * iterations  # also in place
        print(f"| {size} | {calls} | {events / calls:.1f} | {events * event_ns / (took - start) / 1e9:.2%} |", flush=True)


if __name__ == "__main__":
    main()
