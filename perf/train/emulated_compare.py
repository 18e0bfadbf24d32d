#!/usr/bin/env python3
"""Tokens per second of one `sennit train` on an emulated tree, with sennit's and with Open MPI's collectives, in turns.

    perf/train/emulated_compare.py --data FOLDER [--sennit build/release/bin/sennit] [--rounds 3] [--orders dealt,fabric]

FOLDER is what `sennit tokenize` wrote. 8 ranks on 2 racks x 4 hosts of 400 Mbit/s, 7:1; data parallel with ZeRO 0 and 3;
a 4.0M-parameter model in bf16 whose step is mostly communication. Open MPI runs twice: its nonblocking collectives beside
computing, and its blocking ones (`--overlap false`); the better counts. The figures are medians over the rounds of each
run's median step, without its first two steps. Needs what `sennit emulate` needs, and mpirun.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CONFIG = {
    "model": {"model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
              "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True,
              "max_position_embeddings": 512},
    "sequence": 64, "batch": 8, "micro_batch": 1, "sample_tokens": 0, "threads": 1, "precision": "bf16"}
TREE = ["--racks", "2", "--hosts", "4", "--nic", "400Mbit/s", "--oversubscription", "7"]
BACKENDS = {"sennit": ["--backend", "sennit"],
            "mpi": ["--backend", "mpi"],
            "mpi, blocking": ["--backend", "mpi", "--overlap", "false"]}


def run(arguments, folder, order, zero, backend):
    report = folder / "report"
    command = [arguments.sennit, "emulate", "run", *TREE, "--order", order]
    command += ["--mpirun"] if backend != "sennit" else []
    command += ["--", arguments.sennit, "train", str(folder / "config.json"), "--zero", str(zero),
                "--steps", str(arguments.steps), "--report-dir", str(report), *BACKENDS[backend]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    steps = [json.loads(line) for line in (report / "steps.jsonl").read_text().splitlines()][2:]
    return {key: statistics.median(step[key] for step in steps)
            for key in ("tokens_per_s", "ms", "comm_ms", "exposed_ms")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--sennit", default="build/release/bin/sennit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--orders", default="dealt,fabric")
    parser.add_argument("--zero", default="0,3")
    arguments = parser.parse_args()
    arguments.sennit = str(pathlib.Path(arguments.sennit).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = dict(CONFIG, data=str(pathlib.Path(arguments.data).resolve()))
        (folder / "config.json").write_text(json.dumps(config))
        print("order   zero  backend         tokens/s   step ms   comm ms   exposed ms")
        for order in arguments.orders.split(","):
            for zero in arguments.zero.split(","):
                results = {backend: [] for backend in BACKENDS}
                for _ in range(arguments.rounds):
                    for backend, runs in results.items():
                        runs.append(run(arguments, folder, order, zero, backend))
                medians = {backend: {key: statistics.median(r[key] for r in runs) for key in runs[0]}
                           for backend, runs in results.items()}
                for backend, m in medians.items():
                    print(f"{order:<8}{zero:<6}{backend:<14}{m['tokens_per_s']:>10.0f}{m['ms']:>10.0f}"
                          f"{m['comm_ms']:>10.0f}{m['exposed_ms']:>13.0f}")
                peer = max(medians[b]["tokens_per_s"] for b in BACKENDS if b != "sennit")
                print(f"{order:<8}{zero:<6}sennit / the better mpi: {medians['sennit']['tokens_per_s'] / peer:.2f}",
                      flush=True)


if __name__ == "__main__":
    main()
