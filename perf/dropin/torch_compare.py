#!/usr/bin/env python3
"""PyTorch on sennit beside PyTorch on gloo, in the same processes, in turns.

    torchrun --nproc-per-node 4 perf/dropin/torch_compare.py [--sizes 1K,64K,1M,16M,64M] [--models 1M,10M,100M]
    sennit emulate run --racks 2 --hosts 4 --nic 400Mbit/s --uplink 229Mbit/s --order dealt -- \\
        python3 perf/dropin/torch_compare.py --sizes 16M --models 1M --rounds 3 --block-ms 1

An all_reduce of float32 on host memory, and a step of data-parallel training (DDP) of so many parameters. The third
column is the C interface on the same memory, by `import sennit`, whose own cost a call is some microseconds. A block is
a number of calls behind a barrier; its time is that of the slowest rank. Blocks of all kinds take turns. Printed are
medians over the rounds, and the median of the rounds' ratios. Needs PYTHONPATH, as ./run torch sets it.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import sennit
import sennit_torch

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def number(text):
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def slowest(seconds):
    """Of all ranks, in seconds."""
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item()


def block(call, calls):
    """Seconds a call."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return slowest(time.perf_counter() - began) / calls


def in_turns(kinds, rounds, block_s):
    """{kind: [seconds a call, round by round]}"""
    calls = {}
    for name, call in kinds.items():
        block(call, 2)
        calls[name] = max(1, min(1000, int(block_s / block(call, 2))))
    times = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, call in kinds.items():
            times[name].append(block(call, calls[name]))
    return times


def ratio(times, of, to):
    return statistics.median(a / b for a, b in zip(times[of], times[to], strict=True))


def all_reduces(sizes, rounds, block_s, group, comm):
    if dist.get_rank() == 0:
        print("all_reduce of bytes   gloo us   sennit us   C us   gloo / sennit   sennit - C us")
    for size in sizes:
        x = torch.zeros(size // 4)
        y = x.numpy()
        times = in_turns({"gloo": lambda: dist.all_reduce(x),
                          "sennit": lambda: dist.all_reduce(x, group=group),
                          "C": lambda: comm.all_reduce(y)}, rounds, block_s)
        gloo, ours, c = (statistics.median(times[k]) * 1e6 for k in ("gloo", "sennit", "C"))
        if dist.get_rank() == 0:
            print(f"{size:>19}{gloo:>10.0f}{ours:>12.1f}{c:>7.1f}{ratio(times, 'gloo', 'sennit'):>16.2f}"
                  f"{statistics.median(a - b for a, b in zip(times['sennit'], times['C'], strict=True)) * 1e6:>16.1f}",
                  flush=True)


def model_of(parameters):
    """Square layers, eight of them, of about so many parameters together."""
    width = max(8, int((parameters / 8) ** 0.5))
    torch.manual_seed(1)
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU()))), width


def training(models, rounds, block_s, group):
    if dist.get_rank() == 0:
        print("DDP step of parameters   gloo ms   sennit ms   gloo / sennit")
    for parameters in models:
        steps = {}
        for name, of in {"gloo": None, "sennit": group}.items():
            model, width = model_of(parameters)
            model = nn.parallel.DistributedDataParallel(model, process_group=of)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            batch = torch.randn(4, width)

            def step(model=model, optimizer=optimizer, batch=batch):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()

            steps[name] = step
        times = in_turns(steps, rounds, block_s)
        gloo, ours = (statistics.median(times[k]) * 1e3 for k in ("gloo", "sennit"))
        if dist.get_rank() == 0:
            print(f"{parameters:>22}{gloo:>10.1f}{ours:>12.1f}{ratio(times, 'gloo', 'sennit'):>16.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1K,64K,1M,16M,64M")
    parser.add_argument("--models", default="1M,10M,100M")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--block-ms", type=float, default=50, help="about how long a block takes")
    parser.add_argument("--register", action="store_true", help="with sennit_torch.register_memory()")
    options = parser.parse_args()
    sennit_torch.register_memory(options.register)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend="sennit")
    ids = [sennit.unique_id() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(ids)
    comm = sennit.init_rank(ids[0], dist.get_rank(), dist.get_world_size())
    all_reduces([number(s) for s in options.sizes.split(",") if s], options.rounds, options.block_ms / 1e3, group, comm)
    training([number(m) for m in options.models.split(",") if m], options.rounds, options.block_ms / 1e3, group)
    comm.finalize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
