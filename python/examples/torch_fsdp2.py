"""torchrun --nproc-per-node 4 torch_fsdp2.py: parameters sharded over the ranks (FSDP2)."""

import sennit_torch  # noqa: F401: makes the backend known
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("sennit")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
torch.manual_seed(1 + dist.get_rank())  # each rank draws data of its own
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(50):
    x = torch.randn(32, 16)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
