#!/usr/bin/env python3
"""Trains the model of a `sennit train` configuration in PyTorch, and prints tokens per second step by step.

    pytorch_train.py CONFIG --data FOLDER [--mode eager|compiled] [--steps N] [--threads N]

The same model (Hugging Face's LlamaForCausalLM, its scaled-dot-product attention), batch, micro-batch and tokens (the
first shard of FOLDER, which `sennit tokenize` wrote), bf16 autocast over f32 weights, clipping by global norm 1 and fused
AdamW, as `sennit train` has them. "compiled" is torch.compile of model and loss. Needs torch and transformers.
"""

import argparse
import json
import re
import struct
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def read_settings(file):
    with open(file) as text:
        return json.loads(re.sub(r"^\s*//.*$", "", text.read(), flags=re.M))


def read_tokens(folder):
    with open(f"{folder}/index.json") as text:
        file = json.load(text)["parts"]["training"]["shards"][0]["file"]
    with open(f"{folder}/{file}", "rb") as shard:
        magic, width, _, count, _ = struct.unpack("<8sIIQQ", shard.read(32))
        if magic != b"SNTTOKN1":
            raise SystemExit(f"{folder}/{file}: not a shard of `sennit tokenize`")
        tokens = torch.frombuffer(bytearray(shard.read(count * width)), dtype=torch.int16 if width == 2 else torch.int32)
        return tokens.long() & (0xFFFF if width == 2 else 0xFFFFFFFF)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--data", required=True)
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    settings = read_settings(options.config)
    shape = {key: value for key, value in settings["model"].items() if key not in ("model_type", "rope_theta")}
    config = LlamaConfig(**shape, rope_parameters={"rope_type": "default", "rope_theta": settings["model"]["rope_theta"]},
                         attn_implementation="sdpa")
    model = LlamaForCausalLM(config).float()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def loss_of(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    if options.mode == "compiled":
        loss_of = torch.compile(loss_of)
    sequence, batch, micro = settings["sequence"], settings["batch"], settings["micro_batch"]
    tokens = read_tokens(options.data)
    places = torch.randperm((len(tokens) - 1) // sequence)
    next_place = 0
    for step in range(1, options.steps + 1):
        start = time.perf_counter()
        total = 0.0
        for _ in range(batch // micro):
            rows = [tokens[p * sequence:p * sequence + sequence + 1]
                    for p in (places[(next_place + i) % len(places)].item() for i in range(micro))]
            next_place += micro
            loss = loss_of(torch.stack(rows)) / (batch // micro)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - start
        print(json.dumps({"step": step, "loss": round(total, 4), "tokens_per_s": round(batch * sequence / seconds, 1)}),
              flush=True)


if __name__ == "__main__":
    main()
