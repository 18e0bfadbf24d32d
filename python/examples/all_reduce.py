"""mpirun -n 4 python3 all_reduce.py, or torchrun, or srun: the sum of the ranks, on all of them."""

import numpy
import sennit

with sennit.init() as comm:
    x = numpy.full(1 << 20, comm.rank, "float32")
    comm.all_reduce(x)
    print(f"rank {comm.rank} of {comm.size}: {x[0]:g}")
