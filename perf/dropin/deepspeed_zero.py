"""deepspeed_zero.py: DeepSpeed trains a small model with ZeRO on its CPU accelerator.

usage: torchrun --nproc-per-node 4 deepspeed_zero.py BACKEND [STAGE], of torch.distributed's backends sennit or gloo.
Rank 0 prints the loss of every step, one a line.
"""

import sys

import deepspeed
import torch

try:
    import sennit_torch  # noqa: F401: makes the backend known
except ImportError:
    assert sys.argv[1] != "sennit"

STEPS = 20
WIDTH = 64

deepspeed.init_distributed(dist_backend=sys.argv[1], verbose=False)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(),
                            torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=optimizer,
    config={"train_micro_batch_size_per_gpu": 16, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": int(sys.argv[2]) if len(sys.argv) > 2 else 2}})
rank = torch.distributed.get_rank()
data = torch.Generator().manual_seed(1 + rank)
for step in range(STEPS):
    x = torch.randn(16, WIDTH, generator=data)
    loss = (engine(x) - x.sin().sum(1, keepdim=True)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    torch.distributed.all_reduce(mean)
    if rank == 0:
        print(f"loss {step} {mean.item() / torch.distributed.get_world_size():.9g}", flush=True)
torch.distributed.destroy_process_group()
