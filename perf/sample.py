#!/usr/bin/env python3
"""A sample of how near to the bound, and to the other libraries, sennit is on emulated trees.

    perf/sample.py FILE [--seed 1] [--minutes 55]      # each tree x collective x size once: order and knowledge are drawn
    perf/sample.py FILE --all [--minutes 55]           # every order and every knowledge; again and again until all is measured
    perf/sample.py FILE --report                       # what FILE holds

Five trees: 2 racks of 4 at 7:1, racks of 1, 2, 3, 2 at 5:1, 3 x 3 at 5:1, two pods of two racks of two at 2:1 and 4:1, and one drawn from the
seed. All-reduce, all-gather, reduce-scatter, broadcast and all-to-all of 1, 4, 16 and 64 MiB; ranks in fabric order, dealt out or drawn; rates
declared, probed, or only the tree's shape known. Beside each time stand the lower bound of the rates that the tree really has, and what was
predicted. Small all-reduces, 8 B to 512 KiB, are timed in turns with a peer, which is drawn as well, by each setting of its short list; that by
which it is quickest counts. Cells of a peer that is not installed are left out (./run peers gets MPICH and Open MPI 5).

FILE keeps a line of JSON a cell: a run that is begun again goes on, and measures nothing twice. On a machine that does nothing else. Needs what
`sennit emulate` needs.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the source tree stays as it is
import reality

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
SIZES = ["1M", "4M", "16M", "64M"]
SMALL = ["8", "64", "512", "4K", "16K", "64K", "512K"]
KNOWLEDGE = {"rates": [], "probed": ["--no-fabric"], "shape": ["--slurm"]}
PEERS = ["openmpi", "gloo", "mpich", "openmpi5"]


def drawn_tree(seed):
    """Racks of unequal size, with an oversubscription between 2:1 and 8:1."""
    draw = random.Random(f"tree {seed}")
    racks = [draw.randint(1, 4) for _ in range(draw.randint(2, 4))]
    return ["--racks", ",".join(map(str, racks)), "--oversubscription", str(draw.randint(2, 8))]


def trees(seed):
    return {"2 racks of 4 at 7:1": ["--racks", "2", "--hosts", "4", "--oversubscription", "7"],
            "racks of 1, 2, 3, 2 at 5:1": ["--racks", "1,2,3,2", "--oversubscription", "5"],
            "3 racks of 3 at 5:1": ["--racks", "3", "--hosts", "3", "--oversubscription", "5"],
            "2 pods of 2 racks of 2 at 2:1 and 4:1": ["--pods", "2", "--racks", "4", "--hosts", "2", "--oversubscription", "2,4"],
            f"drawn, seed {seed}": drawn_tree(seed)}


def emulate(arguments, verb, *options):
    return subprocess.run([arguments.sennit, "emulate", verb, *options], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, timeout=900).stdout


def bench(arguments, tree, collective, size, order, knowledge):
    iterations = {"64M": "3", "16M": "5"}.get(size, "9")
    environment = ["env", "SENNIT_PROBE=again"] if knowledge == "probed" else []
    out = emulate(arguments, "run", *trees(arguments.seed)[tree], "--nic", "400Mbit/s", "--order", order, *KNOWLEDGE[knowledge], "--",
                  *environment, arguments.sennit, "bench", collective, "-b", size, "-e", size, "-n", iterations, "-w", "1", "-c", "0",
                  "--json", "-")
    return next(json.loads(line) for line in out.splitlines() if line.startswith("{"))


def measure_large(arguments, cell):
    tree, collective, size, order, knowledge = cell
    row = bench(arguments, tree, collective, size, order, knowledge)
    bound = row["bound_us"] if knowledge == "rates" else true_bound(arguments, tree, collective, size, order)
    return {"bound_us": bound, **{key: row[key] for key in ("algorithm", "predicted_us", "time_us", "bytes")}}


def true_bound(arguments, tree, collective, size, order):
    """Of the rates that the tree really has, which a probed or unknown one does not tell."""
    out = emulate(arguments, "run", *trees(arguments.seed)[tree], "--nic", "400Mbit/s", "--order", order, "--",
                  arguments.sennit, "bench", collective, "-b", size, "-e", size, "-n", "1", "-w", "0", "-c", "0", "--json", "-")
    return next(json.loads(line) for line in out.splitlines() if line.startswith("{"))["bound_us"]


def measure_small(arguments, cell):
    tree, _, size, order, peer = cell
    with tempfile.TemporaryDirectory() as name:
        record = pathlib.Path(name) / "record"
        emulate(arguments, "compare", *trees(arguments.seed)[tree], "--nic", "400Mbit/s", "--libraries", "sennit", peer, "--orders", order,
                "--collectives", "all_reduce", "--sizes", size, "--rounds", "7", "--json", str(record))
        rows = [json.loads(line) for line in record.read_text().splitlines()]
        return {"turns": [{key: row.get(key) for key in ("library", "setting", "round", "time_us")} for row in rows if row.get("time_us")]}


def cells(arguments):
    draw = random.Random(f"cells {arguments.seed}")
    large, small = [], []
    for tree in trees(arguments.seed):
        orders = ["fabric", "dealt", f"random:{draw.randint(1, 999)}"]
        every = [(order, knowledge) for order in orders for knowledge in KNOWLEDGE]
        for collective in COLLECTIVES:
            for size in SIZES:
                drawn = draw.choice(every)
                large += [(tree, collective, size, *how) for how in (every if arguments.all else [drawn])]
        pairs = [(order, peer) for order in orders[:2] for peer in PEERS]
        for size in SMALL:
            drawn = draw.choice(pairs)
            small += [(tree, "small", size, *how) for how in (pairs if arguments.all else [drawn])]
    both = large + small
    draw.shuffle(both)  # a run that ends early has some of everything
    # Cells of a peer that is not here are drawn as well, so that a seed is one sample everywhere.
    for peer in PEERS:
        if not pathlib.Path(arguments.sennit).with_name(f"{peer}_perf").exists():
            print(f"LEFT OUT: {peer}, which is not installed: {sum(cell[4] == peer for cell in both)} cells")
            both = [cell for cell in both if cell[4] != peer]
    return both


def ratio_of(entry):
    """Sennit's time over the peer's by its quickest setting: the median over the turns."""
    series = {}
    for row in entry["turns"]:
        series.setdefault((row["library"], row.get("setting")), {})[row["round"]] = row["time_us"]
    ours = series.pop(("sennit", None))
    peer = min(series.values(), key=lambda times: statistics.median(times.values()))
    return statistics.median(time / peer[turn] for turn, time in ours.items() if turn in peer)


def report(entries):
    failed = [entry for entry in entries if "error" in entry]
    if failed:
        print(f"{len(failed)} cells could not be measured: {[entry['cell'] for entry in failed]}")
    entries = [entry for entry in entries if "error" not in entry]
    large = [entry for entry in entries if entry["cell"][1] != "small"]
    for knowledge in KNOWLEDGE:
        known = [entry for entry in large if entry["cell"][4] == knowledge and entry["bound_us"]]
        if not known:
            continue
        ratios = [entry["time_us"] / entry["bound_us"] for entry in known]
        errors = [entry["predicted_us"] / entry["time_us"] for entry in known]
        print(f"{knowledge}: measured / bound in {len(known)} cells: median {statistics.median(ratios):.3f}, at most 1.10 in "
              f"{sum(ratio <= 1.10 for ratio in ratios)}, at most 1.15 in {sum(ratio <= 1.15 for ratio in ratios)}, worst {max(ratios):.2f}")
        print(f"  predicted / measured: median {statistics.median(errors):.3f}, within 15% in "
              f"{sum(1 / 1.15 <= error <= 1.15 for error in errors)} of {len(errors)}, {min(errors):.2f} to {max(errors):.2f}")
        for ratio, entry in sorted(zip(ratios, known), key=lambda pair: -pair[0]):
            if ratio > 1.10:
                tree, collective, size, order, _ = entry["cell"]
                print(f"  {ratio:.2f} {collective} {size}, {tree}, {order}: {entry['algorithm']} {entry['time_us']:.0f} us, bound "
                      f"{entry['bound_us']:.0f}, predicted {entry['predicted_us']:.0f}")
    small = [entry for entry in entries if entry["cell"][1] == "small"]
    for order in ("fabric", "dealt"):
        for peer in PEERS:
            ratios = {tuple(entry["cell"]): ratio_of(entry) for entry in small if tuple(entry["cell"][3:]) == (order, peer)}
            if ratios:
                worst = max(ratios, key=ratios.get)
                print(f"small all-reduces, {order}, sennit / {peer}: geometric mean {statistics.geometric_mean(ratios.values()):.2f} of "
                      f"{len(ratios)}, worst {ratios[worst]:.2f} ({worst[2]}, {worst[0]})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--sennit", default="build/release/bin/sennit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    arguments.sennit = str(pathlib.Path(arguments.sennit).resolve())
    entries = reality.entries_of(arguments.file)
    done = {(entry["seed"], *entry["cell"]) for entry in entries}
    left = [] if arguments.report else [cell for cell in cells(arguments) if (arguments.seed, *cell) not in done]
    print(f"seed {arguments.seed}; the drawn tree is {' '.join(drawn_tree(arguments.seed))}")
    begin, longest = time.monotonic(), 0.0
    while left and time.monotonic() - begin + 1.5 * longest < 60 * arguments.minutes:
        start = time.monotonic()
        cell = left.pop(0)
        measure = measure_small if cell[1] == "small" else measure_large
        entry = {"seed": arguments.seed, "cell": cell}
        try:
            entry |= measure(arguments, cell)
        except (subprocess.SubprocessError, StopIteration, KeyError) as error:
            entry["error"] = repr(error)
            print(f"not measured: {cell}: {error!r}")
        longest = max(longest, time.monotonic() - start)
        reality.append(arguments.file, entry)
        entries.append(json.loads(json.dumps(entry)))
    if left:
        print(f"{len(left)} cells are left: run this again")
    report(entries)


if __name__ == "__main__":
    main()
