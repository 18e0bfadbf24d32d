"""megatron_layers.py: Megatron-core's tensor-parallel layers on the CPU, 2 ways tensor times 2 ways data.

usage: torchrun --nproc-per-node 4 megatron_layers.py BACKEND, of torch.distributed's backends sennit or gloo. A
vocabulary-parallel embedding, a column-parallel and a row-parallel layer and the vocabulary-parallel cross entropy learn
which word follows each. Rank 0 prints the loss of every step, one a line.
"""

import sys

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

try:
    import sennit_torch  # noqa: F401: makes the backend known
except ImportError:
    assert sys.argv[1] != "sennit"

STEPS, WORDS, WIDTH, LENGTH, BATCH = 20, 128, 64, 16, 4


class Model(torch.nn.Module):
    """Of each rank its part."""

    def __init__(self):
        super().__init__()
        config = ModelParallelConfig(tensor_model_parallel_size=2, use_cpu_initialization=True,
                                     params_dtype=torch.float32)
        options = {"config": config, "init_method": lambda weight: torch.nn.init.normal_(weight, std=0.1)}
        self.words = tensor_parallel.VocabParallelEmbedding(WORDS, WIDTH, **options)
        self.up = tensor_parallel.ColumnParallelLinear(WIDTH, 4 * WIDTH, gather_output=False, **options)
        self.down = tensor_parallel.RowParallelLinear(4 * WIDTH, WIDTH, input_is_parallel=True, bias=True,
                                                      skip_bias_add=False, **options)
        self.out = tensor_parallel.ColumnParallelLinear(WIDTH, WORDS, gather_output=False, bias=False, **options)

    def forward(self, words, targets):
        x = self.words(words)
        x = x + self.down(torch.nn.functional.gelu(self.up(x)[0]))[0]
        return tensor_parallel.vocab_parallel_cross_entropy(self.out(x)[0], targets).mean()


dist.init_process_group(sys.argv[1])
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2, create_gloo_process_groups=False)
replicas = parallel_state.get_data_parallel_group()
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(1 + parallel_state.get_data_parallel_rank())
follows = torch.randperm(WORDS, generator=torch.Generator().manual_seed(0))
for step in range(STEPS):
    words = torch.randint(WORDS, (LENGTH, BATCH), generator=data)
    loss = model(words, follows[words])
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=replicas)
        parameter.grad /= replicas.size()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, group=replicas)
    if dist.get_rank() == 0:
        print(f"loss {step} {mean.item() / replicas.size():.9g}", flush=True)
dist.destroy_process_group()
