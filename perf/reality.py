#!/usr/bin/env python3
"""Predicted and measured, and the planner's choices beside the fastest plans, on emulated trees.

    perf/reality.py predicted FILE [--seconds 140]      # 144 cells: 8 collectives of 1, 4 and 16 MiB, three shapes, two orders
    perf/reality.py choices FILE [--seconds 140]        # `sennit tune` with every plan: 8 collectives, 8 B to 64 MiB, three shapes
    perf/reality.py chunks FILE [--seconds 140]         # the choice, and the best of a search over every number of chunks, in turns
    perf/reality.py tuned FILE [--seconds 140]          # the same behind a `sennit tune` as it comes, whose choices are timed again
    perf/reality.py report FILE                         # what FILE holds, measured or not
    perf/reality.py together FILE FILE...               # choices of all FILEs, held against the plans turn by turn

FILE keeps what was measured, a line of JSON a piece: run the command again and again until it says that all is measured, on
a machine that does nothing else. Each run stops before it would need more than --seconds; nothing is measured twice. They print
how many cells meet the figure (predicted within 15% of measured; the choice at most 10% slower than the fastest plan that was
tried) and those that do not. `chunks` searches wider than the planner does: every number of chunks, down to 4 KiB, of every plan whose
prediction is at most three times the best, ranks in fabric order and dealt out. The least of many noisy times is no limit, so the search's
best is timed again, in turns with the choice. It prints how often a plan is within 10% of itself, odd turns beside even ones, and how far
choices are from the lower bound. What was tuned is judged by the second run alone, beside how far the very same plans are apart in
the two runs. Plans take turns, so `together` takes, for each other plan, the median of the choice's time / that plan's over the turns
of all runs, each with what was chosen in it, which cancels what changes from turn to turn. --sizes and --collectives measure some of it, --held-out
other shapes than those that the model was made on. Needs what `sennit emulate` needs.
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

SHAPES = {"2 racks of 4 at 7:1": ["--racks", "2", "--hosts", "4", "--oversubscription", "7"],
          "racks of 1, 2, 3, 2 at 5:1": ["--racks", "1,2,3,2", "--oversubscription", "5"],
          "3 racks of 3 at 5:1": ["--racks", "3", "--hosts", "3", "--oversubscription", "5"]}
HELD_OUT = {"4 racks of 2 at 4:1": ["--racks", "4", "--hosts", "2", "--oversubscription", "4"],
            "2 racks of 3 at 3:1": ["--racks", "2", "--hosts", "3", "--oversubscription", "3"]}
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"]
# Sizes of a piece, and how thoroughly: (least, most, factor, rounds, plans). The largest take seconds a call.
SIZES = [("8", "32K", "8", "5", "64"), ("256K", "2M", "8", "2", "64"), ("16M", "16M", "4", "3", "4"), ("64M", "64M", "4", "1", "3")]

# The same for `chunks`: turns of the two that are compared, and plans of the search.
SEARCHES = [("8", "32K", "8", "9", "1024"), ("256K", "2M", "8", "9", "1024"), ("16M", "16M", "4", "9", "256"), ("64M", "64M", "4", "9", "64")]


def emulated(arguments, shape, order, command):
    run = [arguments.sennit, "emulate", "run", *(SHAPES | HELD_OUT)[shape], "--nic", "400Mbit/s", "--order", order, "--",
           arguments.sennit, *command]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600).stdout


def predicted_piece(arguments, piece):
    shape, order, collective = piece
    out = emulated(arguments, shape, order,
                   ["bench", collective, "-b", "1M", "-e", "16M", "-f", "4", "-n", "7", "-w", "1", "--json", "-"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [{"bytes": row["bytes"], "algorithm": row["algorithm"], "predicted_us": row["predicted_us"],
             "measured_us": row["time_us"], "bound_us": row["bound_us"]} for row in rows]


def tune(arguments, piece, *options, known="", order="fabric"):
    """The rows of `sennit tune`, and its tuning file; `known` is in that file before."""
    shape, collective, (least, most, factor, _, _) = piece
    with tempfile.TemporaryDirectory() as name:
        table, tuning = pathlib.Path(name) / "plans", pathlib.Path(name) / "tuning"
        tuning.write_text(known)
        emulated(arguments, shape, order, ["tune", collective, "-b", least, "-e", most, "-f", factor, *options,
                                           "--file", str(tuning), "--json", str(table)])
        return [json.loads(line) for line in table.read_text().splitlines()], tuning.read_text()


def choices_piece(arguments, piece, known=""):
    _, _, (_, _, _, rounds, plans) = piece
    return tune(arguments, piece, "--plans", plans, "--rounds", rounds, known=known)[0]


def plan_of(row):
    return (row["algorithm"], row["chunks"], *row["radices"], row["whole_stages"])


def same_plan(a, b):
    return a["bytes"] == b["bytes"] and plan_of(a) == plan_of(b)


def without_calibration(tuning):
    """What was found fastest, but not what calibrated the model: its choices are to be those of the model as it comes."""
    return "".join(line for line in tuning.splitlines(True) if not line.startswith("cost"))


def chunks_piece(arguments, piece):
    shape, order, collective, sizes = piece
    _, _, _, rounds, plans = sizes
    searched, tuning = tune(arguments, (shape, collective, sizes), "--every-chunk", "--plans", plans, "--rounds", "1", order=order)
    rows, _ = tune(arguments, (shape, collective, sizes), "--plans", "1", "--rounds", rounds, known=without_calibration(tuning), order=order)
    for row in rows:
        row["searched"] = sum(other["bytes"] == row["bytes"] for other in searched)
    return rows


def tuned_piece(arguments, piece):
    first, tuning = tune(arguments, piece)
    rows = choices_piece(arguments, piece, without_calibration(tuning))
    for row in rows:
        before = [other for other in first if same_plan(row, other)]
        row["before_us"] = before[-1]["measured_us"] if before else None
        row["tuned"] = any(other["kept"] for other in before)
    return rows


def pieces_of(arguments):
    shapes = HELD_OUT if arguments.held_out else SHAPES
    if arguments.what == "predicted":
        return [(shape, order, collective) for shape in shapes for order in ("fabric", "dealt") for collective in arguments.collectives]
    if arguments.what == "chunks":
        return [(shape, order, collective, SEARCHES[i]) for i in arguments.sizes for shape in shapes for order in ("fabric", "dealt")
                for collective in arguments.collectives]
    return [(shape, collective, SIZES[i]) for i in arguments.sizes for shape in shapes for collective in arguments.collectives]


def key(what, piece):
    return json.dumps([what, piece])


def entries_of(path):
    """What a record holds, a line of JSON each. One that a kill cut short ends the program: no report knows what it was."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        try:
            entries.append(json.loads(line))
        except ValueError as error:
            sys.exit(f"{path}:{number}: no whole line of JSON ({error}), as a run leaves it that is killed while it writes: "
                     "remove this line, and run this again")
    return entries


def append(path, entry):
    """On a line of its own, also where the last one has lost its end."""
    text = path.read_text() if path.exists() else ""
    with path.open("a") as file:
        file.write(("" if text.endswith("\n") or not text else "\n") + json.dumps(entry) + "\n")


def read(path):
    return {key(entry["what"], entry["piece"]): entry for entry in entries_of(path)}


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
    for collective in COLLECTIVES:
        over = [(row["measured_us"] / row["bound_us"], row["bytes"], *entry["piece"][:2])
                for entry in entries if entry["piece"][2] == collective for row in entry["rows"]]
        if over:
            print(f"{collective:<15} measured / lower bound: median {statistics.median(ratio for ratio, *_ in over):.3f}, "
                  f"above 1.10 in {sum(ratio > 1.10 for ratio, *_ in over)} of {len(over)}, most {max(over)}")


CHOICES = {"planned": "the planner's own choice", "calibrated": "the calibrated model's choice", "tuned": "what was tuned"}


def report_choices(entries):
    for which, name in CHOICES.items():
        cells, slower, spread = 0, [], {}
        for entry in entries:
            shape, collective, sizes = entry["piece"]
            by_size = {}
            for row in entry["rows"]:
                by_size.setdefault(row["bytes"], []).append(row)
            for size, rows in by_size.items():
                best = min(rows, key=lambda row: row["measured_us"])
                chosen = [row for row in rows if row.get(which)]
                if not chosen:
                    continue
                factor = min(row["measured_us"] for row in chosen) / best["measured_us"]
                cells += 1
                spread.setdefault(f"{sizes[0]} to {sizes[1]}", []).append(factor)
                if factor > 1.1:
                    slower.append((factor, f"  {factor:.2f} {collective} {size:.0f} bytes, {shape}: {chosen[0]['algorithm']} "
                                   f"{chosen[0]['measured_us']:.0f} us, {best['algorithm']} {best['measured_us']:.0f} us"))
        if not cells:
            continue
        print(f"{name}: at most 10% slower than the fastest plan tried in {cells - len(slower)} of {cells} cells")
        for sizes, factors in spread.items():
            print(f"  {sizes:<12} {sum(factor <= 1.1 for factor in factors)} of {len(factors)}, "
                  f"mean {statistics.mean(factors):.2f} worst {max(factors):.2f}")
        print(*[text for _, text in sorted(slower, reverse=True)], sep="\n")


def report_chunks(entries):
    factors, over_bound, slower, near_itself, plans, searched = [], {}, [], 0, 0, []
    for entry in entries:
        shape, order, collective, _ = entry["piece"]
        for chosen in (row for row in entry["rows"] if row["planned"]):
            other = min((row for row in entry["rows"] if row["bytes"] == chosen["bytes"]), key=lambda row: row["measured_us"])
            factor = statistics.median(a / b for a, b in zip(chosen["turns_us"], other["turns_us"]))
            factors.append(max(1, factor))
            searched.append(chosen["searched"])
            if chosen["bound_us"] and chosen["bytes"] >= 1 << 20:
                over_bound.setdefault((shape, order, collective), []).append((chosen["measured_us"] / chosen["bound_us"], chosen))
            if factor > 1.1:
                slower.append((factor, f"  {factor:.2f} {collective} {chosen['bytes']:.0f} bytes, {shape}, {order}: "
                               f"{plan_of(chosen)} beside {plan_of(other)}"))
            for row in (chosen, other):
                plans += 1
                halves = statistics.median(row["turns_us"][::2]), statistics.median(row["turns_us"][1::2])
                near_itself += max(halves) <= 1.1 * min(halves)
    if not factors:
        return
    print(f"the choice is at most 10% slower than the best of {min(searched)} to {max(searched)} plans in "
          f"{len(factors) - len(slower)} of {len(factors)} cells, mean {statistics.mean(factors):.3f} worst {max(factors):.2f}; "
          f"a plan is within 10% of itself in {near_itself} of {plans}")
    print(*[text for _, text in sorted(slower, reverse=True)], sep="\n")
    all_of = [ratio for ratios in over_bound.values() for ratio, _ in ratios]
    if all_of:
        print(f"choice / lower bound from 1 MiB up: median {statistics.median(all_of):.3f}, at most 1.10 in "
              f"{sum(ratio <= 1.10 for ratio in all_of)} of {len(all_of)}, worst {max(all_of):.2f}")
    for (shape, order, collective), ratios in over_bound.items():
        print(f"  {shape:<28} {order:<7} {collective:<15}", *(f"{row['bytes']:.0f}: {ratio:.2f}" for ratio, row in ratios))


def report_tuned(entries):
    report_choices(entries)
    apart = {}
    for entry in entries:
        for row in entry["rows"]:
            if row["before_us"]:
                ratio = max(row["before_us"], row["measured_us"]) / min(row["before_us"], row["measured_us"])
                apart.setdefault(" to ".join(entry["piece"][2][:2]), []).append(ratio)
    for sizes, ratios in apart.items():
        ratios.sort()
        print(f"the very same plan in the two runs, {sizes}: median {statistics.median(ratios):.2f} apart, "
              f"a tenth of {len(ratios)} more than {ratios[len(ratios) * 9 // 10]:.2f}, at most {ratios[-1]:.2f}")


def report_together(paths):
    """The choice of each run beside every plan of that run, turn by turn; of runs that chose the same, the median over all their turns.
    A cell in which runs chose differently is as slow as the slowest choice."""
    random.seed(1)
    ratios, lone = {}, 0
    for path in paths:
        for entry in read(path).values():
            rows = entry["rows"] if entry["what"] == "choices" else []
            for choice in (row for row in rows if row["planned"]):
                where = (*entry["piece"][:2], choice["bytes"])
                plans = ratios.setdefault(where, {}).setdefault(plan_of(choice), {})
                for row in rows:
                    if row["bytes"] == choice["bytes"]:
                        plans.setdefault(plan_of(row), []).extend(a / b for a, b in zip(choice["turns_us"], row["turns_us"]))
    slower, cells, sure = [], set(), set()
    for where, choices in ratios.items():
        for choice, plans in choices.items():
            lone += len(choices) > 1
            best = max(plans, key=lambda name: statistics.median(plans[name]))
            factor = statistics.median(plans[best])
            if factor > 1.1:
                drawn = sorted(statistics.median(random.choices(plans[best], k=len(plans[best]))) for _ in range(1000))
                cells.add(where)
                if drawn[50] > 1.1:
                    sure.add(where)
                slower.append((factor, f"  {factor:.2f} ({drawn[50]:.2f} to {drawn[950]:.2f}) {where[1]} {where[2]:.0f} bytes, {where[0]}: "
                               f"{choice} beside {best}, {len(plans[best])} turns"))
    print(f"over {len(paths)} runs the choice is at most 10% slower than every plan in {len(ratios) - len(cells)} of {len(ratios)} cells; "
          f"in {len(sure)} more than chance explains (in brackets: 90% of as many turns drawn again); "
          f"{lone} choices that not all runs made", *[text for _, text in sorted(slower, reverse=True)], sep="\n")


KINDS = {"predicted": (predicted_piece, report_predicted), "choices": (choices_piece, report_choices),
         "chunks": (chunks_piece, report_chunks),          "tuned": (tuned_piece, report_tuned)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*KINDS, "report", "together"])
    parser.add_argument("file", type=pathlib.Path, nargs="+")
    parser.add_argument("--sennit", default="build/release/bin/sennit")
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--sizes", type=int, nargs="+", default=range(len(SIZES)), help="of 0 (to 32K) to 3 (64M): choices, chunks, tuned")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "together":
        for path in arguments.file:
            if not path.exists():
                parser.error(f"{path}: no such file")
        report_together(arguments.file)
        return
    if len(arguments.file) > 1:
        parser.error(f"{arguments.what} takes one FILE")
    arguments.file = arguments.file[0]
    arguments.sennit = str(pathlib.Path(arguments.sennit).resolve())
    done = read(arguments.file)
    if arguments.what != "report":
        begin, longest = time.monotonic(), 0.0
        left = [piece for piece in pieces_of(arguments) if key(arguments.what, piece) not in done]
        measure, _ = KINDS[arguments.what]
        while left and time.monotonic() - begin + 1.5 * longest < arguments.seconds:
            start = time.monotonic()
            entry = {"what": arguments.what, "piece": left[0], "rows": measure(arguments, left[0])}
            longest = max(longest, time.monotonic() - start)
            append(arguments.file, entry)
            done[key(entry["what"], entry["piece"])] = entry
            left.pop(0)
        print("all is measured" if not left else f"{len(left)} pieces are left: run this again")
    for what, (_, report) in KINDS.items():
        entries = [entry for entry in done.values() if entry["what"] == what]
        if entries:
            report(entries)


if __name__ == "__main__":
    main()
