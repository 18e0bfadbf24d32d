"""sennit: collective communication that knows the network.

    import numpy, sennit

    comm = sennit.init()                      # under mpirun, srun or torchrun
    x = numpy.full(1 << 20, comm.rank, "float32")
    comm.all_reduce(x, op=sennit.SUM)         # in place
    work = comm.all_gather_start(x[:4], y)    # nonblocking; work.wait()

Buffers are numpy arrays, whatever has Python's buffer interface (bytes, array.array,
memoryview), and DLPack tensors on the host. Errors are subclasses of sennit.Error.
"""

from ._core import (
    ANY_SOURCE,
    AVG,
    BAND,
    BOR,
    BXOR,
    MAX,
    MIN,
    PROD,
    SUM,
    Aborted,
    Communicator,
    Error,
    Internal,
    InvalidArgument,
    LinkFailed,
    Memory,
    Mismatch,
    NotFound,
    Op,
    OutOfResources,
    PeerFailed,
    Refused,
    TimedOut,
    Unsupported,
    Work,
    __version__,
    group,
    init,
    init_local,
    init_rank,
    unique_id,
)

__all__ = [name for name in dir() if not name.startswith("_")]
