r"""horovod_train.py: a small model trained by Horovod, its collectives being MPI's.

usage: compare.py --mpi SENNIT horovod_train.py, which runs it by mpirun, with and without sennit before MPI. Rank 0
prints the loss of every step, one a line.

Horovod 0.28.1, the newest, asks for C++14, which the headers of PyTorch 2.15 are past. Its build wants cmake and Open
MPI's compilers, and takes ten minutes on two cores. In a folder outside of this repository, with PyTorch's Python:

    pip install setuptools wheel packaging cloudpickle psutil pyyaml cffi
    pip download --no-deps --no-binary :all: --no-build-isolation horovod==0.28.1
    tar xzf horovod-0.28.1.tar.gz
    sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 20/' horovod-0.28.1/CMakeLists.txt \
        horovod-0.28.1/horovod/torch/CMakeLists.txt
    HOROVOD_WITH_MPI=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_GLOO=1 \
        pip install --no-build-isolation --no-deps ./horovod-0.28.1
"""

import horovod.torch as hvd
import torch

STEPS = 20
WIDTH = 64

hvd.init()
assert hvd.size() > 1, "it was not started by an mpirun that Horovod was built for"
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())  # made alike by the broadcasts below
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(),
                            torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
data = torch.Generator().manual_seed(1 + hvd.rank())
for step in range(STEPS):
    x = torch.randn(16, WIDTH, generator=data)
    optimizer.zero_grad()
    loss = (model(x) - x.sin().sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss")
    # Each rank gives another number of rows to the gather, and one block to every rank.
    rows = hvd.allgather(torch.full((1 + hvd.rank(), 2), float(hvd.rank())), name="rows")
    assert rows[:, 0].tolist() == [r for r in range(hvd.size()) for _ in range(1 + r)]
    blocks = hvd.alltoall(torch.full((hvd.size(),), float(hvd.rank())), name="blocks")
    assert blocks.tolist() == list(range(hvd.size()))
    if hvd.rank() == 0:
        print(f"loss {step} {mean.item():.9g}", flush=True)
hvd.shutdown()
