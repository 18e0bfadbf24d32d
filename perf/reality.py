#!/usr/bin/env python3
"""Predicted and measured, and the planner's choices beside the fastest plans, on emulated trees.

    perf/reality.py predicted FILE [--seconds 140]      # 144 cells: 8 collectives of 1, 4 and 16 MiB, three shapes, two orders
    perf/reality.py choices FILE [--seconds 140]        # `sennit tune` with every plan: 8 collectives, 8 B to 64 MiB, three shapes
    perf/reality.py report FILE                         # what FILE holds, measured or not

FILE keeps what was measured, a line of JSON a piece: run the command again and again until it says that all is measured, on
a machine that does nothing else. Each run stops before it would need more than --seconds; nothing is measured twice. Both print
how many cells meet the figure (predicted within 15% of measured; the choice at most 10% slower than the fastest plan that was
tried) and those that do not. Needs what `sennit emulate` needs.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

SHAPES = {"2 racks of 4 at 7:1": ["--racks", "2", "--hosts", "4", "--oversubscription", "7"],
          "racks of 1, 2, 3, 2 at 5:1": ["--racks", "1,2,3,2", "--oversubscription", "5"],
          "3 racks of 3 at 5:1": ["--racks", "3", "--hosts", "3", "--oversubscription", "5"]}
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"]
# Sizes of a piece, and how thoroughly: (least, most, factor, rounds, plans). The largest take seconds a call.
SIZES = [("8", "32K", "8", "3", "64"), ("256K", "2M", "8", "2", "64"), ("16M", "16M", "4", "1", "4"), ("64M", "64M", "4", "1", "3")]


def emulated(arguments, shape, order, command):
    run = [arguments.sennit, "emulate", "run", *SHAPES[shape], "--nic", "400Mbit/s", "--order", order, "--",
           arguments.sennit, *command]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600).stdout


def predicted_piece(arguments, piece):
    shape, order, collective = piece
    out = emulated(arguments, shape, order,
                   ["bench", collective, "-b", "1M", "-e", "16M", "-f", "4", "-n", "3", "-w", "1", "--json", "-"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [{"bytes": row["bytes"], "algorithm": row["algorithm"], "predicted_us": row["predicted_us"],
             "measured_us": row["time_us"]} for row in rows]


def choices_piece(arguments, piece):
    shape, collective, (least, most, factor, rounds, plans) = piece
    with tempfile.TemporaryDirectory() as name:
        table = pathlib.Path(name) / "plans"
        emulated(arguments, shape, "fabric",
                 ["tune", collective, "-b", least, "-e", most, "-f", factor, "--plans", plans, "--rounds", rounds,
                  "--file", name + "/tuning", "--json", str(table)])
        return [json.loads(line) for line in table.read_text().splitlines()]


def pieces_of(what):
    if what == "predicted":
        return [(shape, order, collective) for shape in SHAPES for order in ("fabric", "dealt") for collective in COLLECTIVES]
    return [(shape, collective, sizes) for sizes in SIZES for shape in SHAPES for collective in COLLECTIVES]


def key(piece):
    return json.dumps(piece)


def read(path):
    done = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            done[key(entry["piece"])] = entry
    return done


def report_predicted(entries):
    cells, outside = 0, []
    spread = {}
    for entry in entries:
        shape, order, collective = entry["piece"]
        for row in entry["rows"]:
            ratio = row["predicted_us"] / row["measured_us"]
            cells += 1
            spread.setdefault((shape, row["bytes"]), []).append(ratio)
            if not 1 / 1.15 <= ratio <= 1.15:
                outside.append(f"  {collective} {row['bytes']} bytes, {shape}, {order}: {row['algorithm']} "
                               f"predicted {row['predicted_us']:.0f} us, measured {row['measured_us']:.0f} us, {ratio:.2f}")
    for (shape, size), ratios in spread.items():
        print(f"{shape:<28} {size:>9} bytes: predicted / measured {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"{cells - len(outside)} of {cells} cells are within 15%", *outside, sep="\n")


def report_choices(entries):
    for which in ("planned", "calibrated"):
        cells, slower, spread = 0, [], {}
        for entry in entries:
            shape, collective, _ = entry["piece"]
            by_size = {}
            for row in entry["rows"]:
                by_size.setdefault(row["bytes"], []).append(row)
            for size, rows in by_size.items():
                best = min(rows, key=lambda row: row["measured_us"])
                chosen = [row for row in rows if row[which]]
                if not chosen:
                    continue
                factor = min(row["measured_us"] for row in chosen) / best["measured_us"]
                cells += 1
                spread.setdefault(collective, []).append(factor)
                if factor > 1.1:
                    slower.append((factor, f"  {factor:.2f} {collective} {size:.0f} bytes, {shape}: {chosen[0]['algorithm']} "
                                   f"{chosen[0]['measured_us']:.0f} us, {best['algorithm']} {best['measured_us']:.0f} us"))
        name = "the planner's own choice" if which == "planned" else "the calibrated model's choice"
        print(f"{name}: at most 10% slower than the fastest plan tried in {cells - len(slower)} of {cells} cells")
        for collective, factors in spread.items():
            print(f"  {collective:<15} mean {sum(factors) / len(factors):.2f} worst {max(factors):.2f}")
        print(*[text for _, text in sorted(slower, reverse=True)], sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predicted", "choices", "report"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--sennit", default="build/release/bin/sennit")
    parser.add_argument("--seconds", type=float, default=140)
    arguments = parser.parse_args()
    arguments.sennit = str(pathlib.Path(arguments.sennit).resolve())
    done = read(arguments.file)
    if arguments.what != "report":
        begin, longest = time.monotonic(), 0.0
        left = [piece for piece in pieces_of(arguments.what) if key(piece) not in done]
        measure = predicted_piece if arguments.what == "predicted" else choices_piece
        while left and time.monotonic() - begin + 1.5 * longest < arguments.seconds:
            start = time.monotonic()
            entry = {"what": arguments.what, "piece": left[0], "rows": measure(arguments, left[0])}
            longest = max(longest, time.monotonic() - start)
            with arguments.file.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            done[key(entry["piece"])] = entry
            left.pop(0)
        print("all is measured" if not left else f"{len(left)} pieces are left: run this again")
    for what, report in (("predicted", report_predicted), ("choices", report_choices)):
        entries = [entry for entry in done.values() if entry["what"] == what]
        if entries:
            report(entries)


if __name__ == "__main__":
    main()
