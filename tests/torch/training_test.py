"""A small transformer trained over sennit and over gloo, four processes: the losses are equal, step by step, to 1e-9
in float64 and to 1e-4 in float32. Data-parallel, sharded (FSDP2), and tensor-parallel times sharded on a 2 x 2 mesh."""

import os
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

RANKS, STEPS, WIDTH, LENGTH, WORDS = 4, 50, 32, 16, 50


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.after(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def parallel(model, how):
    """The model made parallel, and which part of the batch this rank has."""
    rank = dist.get_rank()
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model), rank
    if how == "fsdp2":
        mesh = init_device_mesh("cpu", (RANKS,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh), rank
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"]), rank // 2


def train(rank, backend, how, dtype, port, losses):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      TORCHELASTIC_USE_AGENT_STORE="True")  # the store is there already, as torchrun's is
    torch.set_num_threads(1)
    if backend == "sennit":
        import sennit_torch  # noqa: F401
    dist.init_process_group(backend)
    torch.manual_seed(1)
    model, part = parallel(Transformer().to(dtype), how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        words = torch.randint(WORDS, (2, LENGTH + 1), generator=torch.Generator().manual_seed(step * RANKS + part))
        loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            losses.append(mean.item() / RANKS)
    dist.destroy_process_group()


class Training(unittest.TestCase):
    def check(self, how, dtype, tolerance):
        both = {}
        with multiprocessing.Manager() as manager:
            for backend in "sennit", "gloo":
                losses = manager.list()
                # Of a port that it finds itself: one that is looked for first may be taken when it is used.
                store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
                multiprocessing.spawn(train, (backend, how, dtype, store.port, losses), RANKS)
                both[backend] = list(losses)
        self.assertEqual(len(both["gloo"]), STEPS)
        worst = max(abs(a - b) for a, b in zip(both["sennit"], both["gloo"], strict=True))
        print(f"{how} {dtype}: loss {both['gloo'][0]:.3f} to {both['gloo'][-1]:.3f}, apart by {worst:.1e} at most")
        self.assertLessEqual(worst, tolerance)

    def test_data_parallel(self):
        self.check("ddp", torch.float64, 1e-9)
        self.check("ddp", torch.float32, 1e-4)

    def test_fully_sharded(self):
        self.check("fsdp2", torch.float64, 1e-9)
        self.check("fsdp2", torch.float32, 1e-4)

    def test_two_by_two(self):
        self.check("2 x 2", torch.float64, 1e-9)
        self.check("2 x 2", torch.float32, 1e-4)


if __name__ == "__main__":
    unittest.main()
