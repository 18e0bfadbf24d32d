"""torchrun --nproc-per-node 4 torch_checkpoint.py FOLDER: save on all ranks, load on all ranks."""

import sys

import sennit_torch  # noqa: F401: makes the backend known
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

dist.init_process_group("sennit")
state = {"weight": torch.full((8, 8), 3.0), "step": 7}
checkpoint.save(state, checkpoint_id=sys.argv[1])
loaded = {"weight": torch.zeros(8, 8), "step": 0}
checkpoint.load(loaded, checkpoint_id=sys.argv[1])
if dist.get_rank() == 0:
    print(f"step {loaded['step']}, weight {loaded['weight'][0, 0].item():g}")
dist.destroy_process_group()
