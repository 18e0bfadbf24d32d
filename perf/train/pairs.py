#!/usr/bin/env python3
"""Two builds train the same in turns: tokens a second, ratios pair by pair.

    perf/train/pairs.py --data FOLDER --before OLD/bin/sennit --after build/release/bin/sennit [--pairs 15] [--seconds 30]

FOLDER is what `sennit tokenize` wrote. Each run is `sennit train trainer/small.json` with so many ranks on this machine, for so
many seconds, without checkpoints and held-out losses. A run's figure is the tokens of a step over the median time of its steps,
the first ten left out. Every second pair goes the other way round. Printed is the median of after / before, with the middle
half of the pairs. Exit status 1: it is below --limit.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "trainer/small.json"
WARM_UP_STEPS = 10
TOKENS = 16 * 256  # of a step: batch and sequence of trainer/small.json


def tokens_per_second(sennit, arguments):
    with tempfile.TemporaryDirectory() as folder:
        command = [sennit, "train", str(CONFIG), "--local", str(arguments.ranks), "--data", arguments.data, "--seconds",
                   str(arguments.seconds), "--evaluate-every", "0", "--sample-tokens", "0", "--report-dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=arguments.seconds + 120)
        steps = [json.loads(line) for line in (pathlib.Path(folder) / "steps.jsonl").read_text().splitlines()]
    times = [step["ms"] for step in steps[WARM_UP_STEPS:]]
    if not times:
        raise SystemExit(f"pairs.py: {sennit} took {len(steps)} steps in {arguments.seconds} s; more than {WARM_UP_STEPS} count")
    return TOKENS / statistics.median(times) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--limit", type=float, default=0.97)
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error(f"--pairs {arguments.pairs}: without a pair nothing is held against the limit")
    ratios, before = [], []
    for turn in range(arguments.pairs):
        pair = {}
        for side in sorted(("before", "after"), reverse=turn % 2 == 0):
            pair[side] = tokens_per_second(getattr(arguments, side), arguments)
        before.append(pair["before"])
        ratios.append(pair["after"] / pair["before"])
        print(f"pair {turn + 1}: {pair['before']:,.0f} and {pair['after']:,.0f} tokens/s", flush=True)
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else 3 * ratios
    print(f"before {statistics.median(before):,.0f} tokens/s  after / before {median:.3f}  ({low:.3f} to {high:.3f}, "
          f"{len(ratios)} pairs)")
    return 0 if median >= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
