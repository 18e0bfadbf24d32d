#!/usr/bin/env python3
"""How much of its communication one `sennit train` hides behind computing, on an emulated tree, in one command.

    perf/train/overlap.py --data FOLDER [--sennit build/release/bin/sennit] [--zero 0,1,3] [--steps 28]

FOLDER is what `sennit tokenize` wrote. 8 ranks, dealt out over 2 racks x 4 hosts of 400 Mbit/s, 7:1, data parallel; a
9.9M-parameter model in bf16 with so many tokens a rank that its backward pass takes longer than the network. Overlap is
switched on and off within each run, two steps and two steps, the second of which counts, and after them the same batch
is computed once more with nothing sent (`--measure-overlap true`). Each four steps are held against one another, so that
a machine that becomes slower or faster meanwhile changes little, and medians are taken of these differences:

  computing      of a step where nothing is sent, and its update: by the slowest rank
  communicating  what a step without overlap takes longer than that
  bound          the longer of the two: no overlap can be faster
  hidden         (without - with) / (without - bound): 100% where a step with overlap is as fast as the bound; in
                 brackets, from six fours on, the middle 90% of what as many drawn from these at random would give
  by the clocks  the step line's figure: of the time with a transfer under way, as far as computing lasts, that in which
                 the rank computed

All ranks share this machine's cores, so what the kernel computes to carry the bytes is paid by computing: it counts as
not hidden in `hidden`, though not by the clocks. The first four steps do not count. Needs what `sennit emulate` needs.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import tempfile

MODEL = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 12,
         "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True,
         "max_position_embeddings": 512}


def run(arguments, folder, zero):
    report = folder / "report"
    command = [arguments.sennit, "emulate", "run", "--racks", arguments.racks, "--hosts", arguments.hosts, "--nic", arguments.nic,
               "--oversubscription", arguments.oversubscription, "--order", arguments.order, "--", arguments.sennit,
               "train", str(folder / "config.json"), "--steps", str(arguments.steps), "--zero", zero,
               "--measure-overlap", "true", "--report-dir", str(report)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    steps = [json.loads(line) for line in (report / "steps.jsonl").read_text().splitlines()]
    # Of each two of a kind the second counts: no transfer of the other kind goes on in it.
    fours = [steps[i : i + 4] for i in range(4, len(steps) - 3, 4)]
    if not fours:
        raise SystemExit(f"overlap.py: --steps {arguments.steps}: the first four do not count: 8 at the least")
    ms = lambda step: step["ms"] - step["data_wait_ms"]
    return {"times": [(ms(four[1]), ms(four[3]), four[3]["alone_ms"]) for four in fours],
            "exposed": statistics.median(four[1]["exposed_ms"] for four in fours),
            "clocks": statistics.median([four[1]["hidden"] for four in fours if "hidden" in four[1]] or [math.nan])}


def hidden(times):
    """Of (with, without, alone): what is computed, communicated, without less with, and the share that is hidden."""
    computing = statistics.median(alone for _, _, alone in times)
    communicating = max(0, statistics.median(without - alone for _, without, alone in times))
    gained = statistics.median(without - with_overlap for with_overlap, without, _ in times)
    possible = min(computing, communicating)
    return computing, communicating, gained, gained / possible if possible > 0.02 * computing else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--sennit", default="build/release/bin/sennit")
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--zero", default="0,1,3")
    parser.add_argument("--racks", default="2")
    parser.add_argument("--hosts", default="4", help="a rack; with 1 each rank has a core of its own where there are two")
    parser.add_argument("--nic", default="400Mbit/s")
    parser.add_argument("--oversubscription", default="7")
    parser.add_argument("--order", default="dealt")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--micro", type=int, default=16)
    arguments = parser.parse_args()
    arguments.sennit = str(pathlib.Path(arguments.sennit).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = {"model": MODEL, "data": str(pathlib.Path(arguments.data).resolve()), "sample_tokens": 0,
                  "threads": 1, "precision": "bf16", "sequence": arguments.sequence, "batch": arguments.batch,
                  "micro_batch": arguments.micro}
        (folder / "config.json").write_text(json.dumps(config))
        print("zero  computing  communicating  bound  without  with  exposed                hidden  by the clocks")
        for zero in arguments.zero.split(","):
            m = run(arguments, folder, zero)
            computing, communicating, gained, share = hidden(m["times"])
            draws = random.Random(1)
            shares = [hidden(draws.choices(m["times"], k=len(m["times"])))[3] for _ in range(1000)]
            text = "nothing" if share is None else f"{share:.0%}"
            if share is not None and None not in shares and len(m["times"]) >= 6:
                shares.sort()
                text += f" ({shares[50]:.0%} to {shares[-51]:.0%})"
            without = computing + communicating
            print(f"{zero:<6}{computing:>9.0f}{communicating:>15.0f}{max(computing, communicating):>7.0f}{without:>9.0f}"
                  f"{without - gained:>6.0f}{m['exposed']:>9.0f}{text:>22}{m['clocks']:>15.0%}",
                  flush=True)


if __name__ == "__main__":
    main()
