"""torchrun --nproc-per-node 4 torch_ddp.py: data-parallel training over sennit."""

import sennit_torch  # noqa: F401: makes the backend known
import torch
import torch.distributed as dist

dist.init_process_group("sennit")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1))
torch.manual_seed(1 + dist.get_rank())  # each rank draws data of its own
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(50):
    x = torch.randn(32, 16)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
