"""torchrun --nproc-per-node 4 torch_dtensor.py: a matrix product on a 2 x 2 mesh (DTensor)."""

import sennit_torch  # noqa: F401: makes the backend known
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("sennit")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2, 2))
a, b = torch.randn(64, 32), torch.randn(32, 48)
rows = distribute_tensor(a, mesh, [Shard(0), Replicate()])
columns = distribute_tensor(b, mesh, [Replicate(), Shard(1)])
product = (rows @ columns).full_tensor()
if dist.get_rank() == 0:
    print(f"largest error {(product - a @ b).abs().max().item():.0e}")
dist.destroy_process_group()
