"""sennit_torch: sennit as a backend of torch.distributed, on tensors in host memory and on CUDA devices.

    import torch.distributed as dist
    import sennit_torch

    dist.init_process_group("sennit")  # under torchrun, with no other variable

"cpu:sennit,cuda:nccl" is possible as well. Ranks meet through torch's own store.
"""

import atexit
import re

import torch
import torch.distributed as dist

try:
    from . import _core
except ImportError as error:
    raise ImportError(
        f"sennit_torch was built for another PyTorch than {torch.__version__}, which is installed; "
        f"build it again: pip install --no-build-isolation ./python ({error})"
    ) from error


def _release(version):
    """What PyTorch's headers have of a version: "2.15.0" also of 2.15.0.dev20261101+cpu and 2.15.0a0+git."""
    return re.match(r"\d+(\.\d+)*", version)[0]


if _core.torch_version != _release(torch.__version__):
    raise ImportError(
        f"sennit_torch was built for PyTorch {_core.torch_version}, and {torch.__version__} is "
        "installed; build it again: pip install --no-build-isolation ./python"
    )


def _process_group(options, _, name="sennit"):
    timeout = options.timeout.total_seconds()
    return _core.process_group(
        options.store,
        options.group_rank,
        options.group_size,
        timeout,
        name,
        options.group_id,
        options.global_ranks_in_group,
        torch.cuda.device_count() > 0,  # which begins nothing with the devices that a fork would break
    )


def register():
    """Makes the backend known. To import this is enough; PyTorch 2.15 and later call it themselves."""
    dist.Backend.register_backend("sennit", _process_group, extended_api=True, devices=["cpu", "cuda"])


def register_memory(wanted=True):
    """Whether tensors of 256 KiB and more that collectives use again are made readable to peers on this host.

    Then an all_reduce of 16 MiB between four processes takes half the time. A tensor is registered
    when a collective uses it for the second time, until its storage is freed. Off by default:
    memory that is registered is shared with forked children, both ways, so that a child does not
    keep the values of the moment at which it was forked.
    """
    _core.register_memory(wanted)


atexit.register(_core.settle)  # calls that are out hold up no exit
register()
