#!/usr/bin/env python3
"""faults.py: how soon, and how rightly, a running job names what was made slow on an emulated tree.

usage: faults.py [KIND...] [--job JOB] [--trials N] [--seed N] [--racks N] [--hosts N] [--oversubscription X]

For each trial a job of one rank a host runs; after three seconds something goes wrong, of a random place, and rank 0's log
is watched for ten seconds. The job makes all-reduces of 4 MB (`--job calls`) or trains a small Llama (`--job train`). A
line a kind: in how many trials something was named, in how many the truth was among it, in how many of these within
five seconds, and the median and longest time until then.

  nic        what joins a host to its rack carries half, in both directions
  uplink     what joins a rack to the others carries half, in one direction
  late       a rank's process is stopped for 0.1 s in every 0.2 s
  neighbour  another job sends from one host of a rack to another one of it, as fast as it can
  none       nothing; watched for 20 s
  wobble     what joins a host to its rack carries a tenth less every other second, in both directions, which is too little
             to be named; watched for 20 s
  busy       no link: another job trains beside it, on a tree of its own but on the same cores; watched for 20 s, and only
             what is said of links counts; not done unless it is named
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

NIC_MBIT = 400
BEFORE_S, AFTER_S, CLEAN_S, SOON_S = 3, 10, 20, 5
KINDS = ["nic", "uplink", "late", "neighbour", "none", "wobble", "busy"]
CLEAN = KINDS[-3:]  # nothing is to be named
OF_LINK = r"(.*?): \d+% of (?:its|their) capacity[^\n]*"
OF_RANK = r"(ranks? [\d,-]+(?: and \d+)?) (?:comes? late|gets? no core)[^\n]*"
SAYS_OF_LINK = re.compile(rf"warning: (?!no longer){OF_LINK}")
SAYS = re.compile(rf"warning: (?!no longer)(?:{OF_LINK}|{OF_RANK})")


def sennit(*words):
    subprocess.run(["sennit", *words], check=True, capture_output=True, text=True)


def on_hosts(tree, *command):
    return ["sennit", "emulate", "run", "--name", tree, "--order", "fabric", "--", *command]


def training(folder, ranks):
    """The words of a training of so many ranks, each on one thread, whose input is made first."""
    here = pathlib.Path(__file__).resolve().parents[2]
    lines = (here / "trainer/small.json").read_text().splitlines()
    config = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    config["model"] |= {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
                        "num_key_value_heads": 2}
    config |= {"sequence": 64, "batch": ranks, "micro_batch": 1, "seconds": 3600, "evaluate_every": 100000}
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    sennit("tokenize", "--output", f"{folder}/data")
    return ["sennit", "train", f"{folder}/config.json", "--data", f"{folder}/data", "--threads", "1"]


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
        its_own = f"RANK={rank}" in variables and f"FAULTS_JOB={parent}" in variables
        if its_own and "emulate" not in command:
            return int(pid)
    raise SystemExit(f"faults.py: rank {rank}'s process is not there")


class InTurns:
    """Does one thing and then the other, again and again, with a pause after each, until it is told to end."""

    def __init__(self, pause_s, one, other):
        self.pause_s, self.one, self.other, self.over = pause_s, one, other, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            self.one()
            self.over.wait(self.pause_s)
            self.other()
            self.over.wait(self.pause_s)

    def end(self):
        self.over.set()
        self.thread.join()


def places(options, random_):
    """A rank, whose number is its host's, a rack, a direction, and two hosts of that rack."""
    rank, rack = random_.randrange(1, options.racks * options.hosts), random_.randrange(options.racks)
    one, other = random_.sample(range(rack * options.hosts, (rack + 1) * options.hosts), 2)
    return rank, rack, random_.choice(["out", "in"]), one, other


@contextlib.contextmanager
def tree_of(name, options):
    """An emulated tree, while it is needed."""
    sennit("emulate", "up", "--name", name, "--racks", str(options.racks), "--hosts", str(options.hosts), "--nic",
           f"{NIC_MBIT}Mbit/s", "--oversubscription", f"{options.oversubscription:g}")
    try:
        yield name
    finally:
        sennit("emulate", "down", "--name", name)


@contextlib.contextmanager
def under_way(command, log, name):
    """A job that is ended, and with it all its ranks, however its trial ends."""
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=os.environ | {"FAULTS_JOB": name},
                           start_new_session=True)
    try:
        yield job
    finally:
        job.send_signal(signal.SIGINT)
        job.wait()


def must_go_on(job, log):
    if job.poll() is not None:
        with open(log.name) as file:
            raise SystemExit(f"faults.py: a job ended:\n{file.read()[-2000:]}")


@contextlib.contextmanager
def training_beside(name, options, words):
    """Another job, on a tree of its own, which must not end before it is told to."""
    with tree_of(name, options) as tree, tempfile.NamedTemporaryFile("w+") as log, \
            under_way(on_hosts(tree, *words), log, name) as job:
        yield
        must_go_on(job, log)


def trial(kind, job_words, options, tree, random_):
    """(what was named, whether that is right, seconds until then, what would be right, the whole sentence)"""
    rank, rack, way, one, other = places(options, random_)
    job_name = f"{tree}-{random_.random()}"
    in_turns = slow = neighbour = None
    watched, says = (CLEAN_S if kind in CLEAN else AFTER_S), (SAYS_OF_LINK if kind == "busy" else SAYS)
    with tempfile.NamedTemporaryFile("w+") as log, under_way(on_hosts(tree, *job_words), log, job_name) as job:
        time.sleep(BEFORE_S)
        if kind == "nic":
            slow = f"h{rank}"
            sennit("emulate", "slow", slow, f"{NIC_MBIT / 2:g}Mbit/s", "--name", tree)
        elif kind == "uplink":
            slow = f"rack{rack}"
            rate = NIC_MBIT * options.hosts / options.oversubscription / 2
            sennit("emulate", "slow", slow, f"{rate:.3f}Mbit/s", "--direction", way, "--name", tree)
        elif kind == "late":
            pid = process_of(rank, job_name)
            in_turns = InTurns(0.1, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))
        elif kind == "wobble":
            in_turns = InTurns(
                1, lambda: sennit("emulate", "slow", f"h{rank}", f"{0.9 * NIC_MBIT:g}Mbit/s", "--name", tree),
                lambda: sennit("emulate", "heal", f"h{rank}", "--name", tree))
        elif kind == "neighbour":
            program = str(pathlib.Path(__file__).with_name("neighbour.py"))
            neighbour = subprocess.Popen(on_hosts(tree, program, f"h{one}", f"h{other}", str(AFTER_S)))
        began, found, before = time.monotonic(), None, os.path.getsize(log.name)
        while found is None and time.monotonic() < began + watched and job.poll() is None:
            time.sleep(0.05)
            with open(log.name) as file:
                file.seek(0 if kind in CLEAN else before)
                found = says.search(file.read())
        took = time.monotonic() - began
        if in_turns:
            in_turns.end()
        if slow:
            sennit("emulate", "heal", slow, "--name", tree)
        if found is None:
            must_go_on(job, log)
    if neighbour:
        neighbour.wait()
    named = next(filter(None, found.groups())) if found else ""
    ways = {"nic": [f"h{rank}", f"out of h{rank}", f"into h{rank}"], "late": [f"rank {rank}"],
            "uplink": [f"rack{rack}", f"{'out of' if way == 'out' else 'into'} rack{rack}"],
            "neighbour": [f"h{one}", f"h{other}", f"out of h{one}", f"into h{other}"]}.get(kind, [])
    right = any(place in ways for place in re.split(r" or |, ", named))
    return named, right, took, ways, found.group(0) if found else ""


def measure(kind, options, one_trial):
    results = [one_trial() for _ in range(options.trials)]
    times = [took for _, right, took, *_ in results if right]
    median, longest = (f"{statistics.median(times):.1f} s", f"{max(times):.1f} s") if times else ("", "")
    print(f"| {kind} | {options.trials} | {sum(bool(named) for named, *_ in results)} | {len(times)} "
          f"| {sum(took <= SOON_S for took in times)} | {median} | {longest} |", flush=True)
    for named, right, _, ways, sentence in results:
        if named and not right:
            print(f"<!-- {kind}: {sentence}, expected one of {ways} -->", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--job", choices=["calls", "train"], default="calls")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--racks", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--oversubscription", type=float, default=4)
    options = parser.parse_args()
    kinds = options.kinds or KINDS[:-1]
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"{unknown[0]}: expected one of {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("faults.py: told to end"))
    random_ = random.Random(options.seed)
    name = f"faults{os.getpid()}"
    with contextlib.ExitStack() as stack:
        tree = stack.enter_context(tree_of(name, options))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        train = training(folder, options.racks * options.hosts) if options.job == "train" or "busy" in kinds else []
        job_words = train if options.job == "train" else ["calls", "-b", "4000000", "-t", "3600"]
        print("| what is wrong | trials | something named | rightly | within 5 s | after, median | longest |\n"
              "|---|---|---|---|---|---|---|")
        for kind in kinds:
            with training_beside(f"{name}b", options, train) if kind == "busy" else contextlib.nullcontext():
                measure(kind, options, lambda: trial(kind, job_words, options, tree, random_))


if __name__ == "__main__":
    main()
