#!/usr/bin/env python3
"""replanning.py: what a job's calls take while a link gets slow and well again, and ranks plan around it.

usage: replanning.py [CASE...] [--seconds S] [--off]

Brings a tree up for each case, runs `calls` on it (all-reduces of 16 MB), slows a link after a third of the time and heals
it after two thirds. Prints a line a case: medians of the calls, well, slow and well again, beside the lower bounds of
`sennit simulate --slow`; and after how many calls each change was made up for, that is the first of three calls in a row
within 1.12 times the bound. --off: with SENNIT_REPLAN=0, for what it would take without.

A case is RACKSxHOSTS:OVERSUBSCRIPTION:LINK:SHARE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CASES = ["2x4:7:h0:0.25", "4x2:5:rack0:0.25", "2x4:7:rack0:0.25"]
NIC_MBIT = 400
BYTES = 16_000_000
NEAR = 1.12  # times the bound


def sennit(*words):
    return subprocess.run(["sennit", *words], check=True, capture_output=True, text=True).stdout


def bounds(racks, hosts, oversubscription, link, share):
    """Lower bounds in seconds: of the fabric as it is declared, and with the slow link; and by the simulator the schedule
    of the one on the other, and one planned anew."""
    fabric = f"racks={racks}x{hosts};nic={NIC_MBIT}Mbit/s;oversubscription={oversubscription}"
    words = ["simulate", "all_reduce", "-b", str(BYTES), "--fabric", fabric, "--json", "-"]
    well = json.loads(sennit("plan", *words[1:]))["bound_us"]
    slow = json.loads(sennit(*words, "--slow", f"{link}={share}"))
    return well / 1e6, slow["planned_anew"]["bound_us"] / 1e6, slow["time_us"] / 1e6, slow["planned_anew"]["time_us"] / 1e6


def rate_of(racks, hosts, oversubscription, link):
    """Of what joins the link to the one above, in Mbit/s."""
    return NIC_MBIT * hosts / oversubscription if link.startswith("rack") else NIC_MBIT


def run(case, seconds, environment):
    shape, oversubscription, link, share = case.split(":")
    racks, hosts = (int(word) for word in shape.split("x"))
    oversubscription, share = float(oversubscription), float(share)
    name = f"replanning{os.getpid()}"
    rate = rate_of(racks, hosts, oversubscription, link) * share
    sennit("emulate", "up", "--name", name, "--racks", str(racks), "--hosts", str(hosts), "--nic", f"{NIC_MBIT}Mbit/s",
           "--oversubscription", f"{oversubscription:g}")
    try:
        with tempfile.TemporaryFile("w+") as log:
            job = subprocess.Popen(["sennit", "emulate", "run", "--name", name, "--order", "fabric", "--", "calls", "-b",
                                    str(BYTES), "-t", str(seconds)], stdout=subprocess.PIPE, stderr=log, text=True,
                                   env=environment)
            time.sleep(seconds / 3)
            slowed = time.time()
            sennit("emulate", "slow", link, f"{rate:.3f}Mbit/s", "--name", name)
            time.sleep(seconds / 3)
            healed = time.time()
            sennit("emulate", "heal", link, "--name", name)
            output, _ = job.communicate()
            log.seek(0)
            said = log.read()
        if job.returncode != 0:
            sys.exit(f"{case}: the job failed\n{said}")
    finally:
        sennit("emulate", "down", "--name", name)
    calls = [tuple(float(word) for word in line.split()[-2:]) for line in output.splitlines() if "call " in line]
    return calls, slowed, healed, [line for line in said.splitlines() if "planning" in line or "plans are" in line]


def made_up_after(calls, begin, end, bound):
    """How many calls had begun when the first of three came that were near the bound; None: there were none such."""
    within = [took for at, took in calls if begin <= at < end]
    for n in range(len(within) - 2):
        if all(took <= NEAR * bound for took in within[n:n + 3]):
            return n
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--off", action="store_true")
    arguments = parser.parse_args()
    environment = dict(os.environ)
    if arguments.off:
        environment["SENNIT_REPLAN"] = "0"
    print("| case | bound | well | slow: bound | stale, simulated | measured | / bound | made up after | well again | after |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in arguments.cases:
        shape, oversubscription, link, share = case.split(":")
        racks, hosts = (int(word) for word in shape.split("x"))
        well, slow, stale, _ = bounds(racks, hosts, oversubscription, link, share)
        calls, slowed, healed, said = run(case, arguments.seconds, environment)
        last = calls[-1][0] + calls[-1][1]

        def median(begin, end, half=True):
            within = [took for at, took in calls if begin <= at and at + took < end]
            return statistics.median(within[len(within) // 2:] if half else within)

        before, during, after = median(calls[1][0], slowed, False), median(slowed, healed), median(healed, last + 1)
        print(f"| {case} | {well:.2f} s | {before:.2f} | {slow:.2f} | {stale:.2f} | {during:.2f} | {during / slow:.2f} | "
              f"{made_up_after(calls, slowed, healed, slow)} calls | {after:.2f} | "
              f"{made_up_after(calls, healed, last, well)} calls |", flush=True)
        for line in said:
            print(f"<!-- {line} -->")


if __name__ == "__main__":
    main()
