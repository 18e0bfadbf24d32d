#!/usr/bin/env python3
"""faults.py: how soon, and how rightly, a running job names what was made slow on an emulated tree.

usage: faults.py [KIND...] [--trials N] [--seed N] [--racks N] [--hosts N] [--oversubscription X]

For each trial a job of one rank a host makes all-reduces of 4 MB (`calls`); after three seconds something goes wrong, of
a random place, and rank 0's log is watched for ten seconds. A line a kind: in how many trials something was named, in how
many the truth was among it, and the median and longest time until then.

  nic       what joins a host to its rack carries half, in both directions
  uplink    what joins a rack to the others carries half, in one direction
  late      a rank's process is stopped for 0.1 s in every 0.2 s
  none      nothing; watched for as long
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time

NIC_MBIT = 400
BEFORE_S, AFTER_S = 3, 10
SAYS = re.compile(r"warning: (?!no longer)(?:(.*?): \d+% of (?:its|their) capacity|(ranks? [\d,-]+(?: and \d+)?) comes? late)")


def sennit(*words):
    subprocess.run(["sennit", *words], check=True, capture_output=True, text=True)


def process_of(rank, parent):
    """The rank's process, among those that `parent` has started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                command = file.read().split("\0")
            with open(f"/proc/{pid}/environ") as file:
                variables = file.read().split("\0")
        except OSError:
            continue
        if command[0].endswith("calls") and f"RANK={rank}" in variables and f"FAULTS_JOB={parent}" in variables:
            return int(pid)
    raise SystemExit(f"faults.py: rank {rank}'s process is not there")


class Late:
    """Stops a process again and again until it is told to end."""

    def __init__(self, pid):
        self.pid, self.over = pid, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.1)

    def end(self):
        self.over.set()
        self.thread.join()


def trial(kind, options, tree, random_):
    """(what was named, whether that is right, seconds until then)"""
    ranks = options.racks * options.hosts
    rank, rack, way = random_.randrange(1, ranks), random_.randrange(options.racks), random_.choice(["out", "in"])
    job_name = f"{tree}-{random_.random()}"
    late = slow = None
    with tempfile.NamedTemporaryFile("w+") as log:
        words = ["sennit", "emulate", "run", "--name", tree, "--order", "fabric", "--", "calls", "-b", "4000000", "-t",
                 str(BEFORE_S + AFTER_S)]
        job = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, env=os.environ | {"FAULTS_JOB": job_name})
        time.sleep(BEFORE_S)
        if kind == "nic":
            slow = f"h{rank}"
            sennit("emulate", "slow", slow, f"{NIC_MBIT / 2:g}Mbit/s", "--name", tree)
        elif kind == "uplink":
            slow = f"rack{rack}"
            rate = NIC_MBIT * options.hosts / options.oversubscription / 2
            sennit("emulate", "slow", slow, f"{rate:.3f}Mbit/s", "--direction", way, "--name", tree)
        elif kind == "late":
            late = Late(process_of(rank, job_name))
        began, found = time.monotonic(), None
        while found is None and time.monotonic() < began + AFTER_S and job.poll() is None:
            time.sleep(0.05)
            with open(log.name) as file:
                found = SAYS.search(file.read())
        took = time.monotonic() - began
        if late:
            late.end()
        if slow:
            sennit("emulate", "heal", slow, "--name", tree)
        job.wait()
    named = (found.group(1) or found.group(2)) if found else ""
    places = re.split(r" or |, ", named)
    ways = {"nic": [f"h{rank}", f"out of h{rank}", f"into h{rank}"], "late": [f"rank {rank}"], "none": [],
            "uplink": [f"rack{rack}", f"{'out of' if way == 'out' else 'into'} rack{rack}"]}[kind]
    return named, any(place in ways for place in places), took, ways


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--racks", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--oversubscription", type=float, default=4)
    options = parser.parse_args()
    known = ["nic", "uplink", "late", "none"]
    unknown = [kind for kind in options.kinds if kind not in known]
    if unknown:
        parser.error(f"{unknown[0]}: expected one of {', '.join(known)}")
    random_ = random.Random(options.seed)
    tree = f"faults{os.getpid()}"
    sennit("emulate", "up", "--name", tree, "--racks", str(options.racks), "--hosts", str(options.hosts), "--nic",
           f"{NIC_MBIT}Mbit/s", "--oversubscription", f"{options.oversubscription:g}")
    try:
        print("| what is wrong | trials | something named | rightly | after, median | longest |\n|---|---|---|---|---|---|")
        for kind in options.kinds or known:
            results = [trial(kind, options, tree, random_) for _ in range(options.trials)]
            times = [took for named, right, took, _ in results if right]
            median, longest = (f"{statistics.median(times):.1f} s", f"{max(times):.1f} s") if times else ("", "")
            print(f"| {kind} | {options.trials} | {sum(bool(named) for named, *_ in results)} | {len(times)} | {median} "
                  f"| {longest} |", flush=True)
            for named, right, _, ways in results:
                if named and not right:
                    print(f"<!-- {kind}: {named}, expected one of {ways} -->", flush=True)
    finally:
        sennit("emulate", "down", "--name", tree)


if __name__ == "__main__":
    main()
