#!/usr/bin/env python3
"""CuPy's and nccl4py's interfaces to NCCL, on sennit, in 4 processes and on host memory.

    sennit exec -- python3 tests/nccl/python_clients.py      (./run nccl makes the environment)

Every method of cupy.cuda.nccl.NcclCommunicator is called, and every function of nccl.bindings.nccl
that src/nccl/functions.h says works. What needs CUDA's driver before NCCL is called at all, and so
is not here:

  the collectives and messages of nccl.core.Communicator, its device and register_buffer, and
      nccl.core.mem_alloc look for the device first. cuda.pathfinder: DynamicLibNotFoundError,
      '"cuda" is an NVIDIA driver library and can only be found via system search'
  CuPy's arrays: cudaErrorInsufficientDriver. These are numpy's, by address
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

RANKS = 4
LIMIT = 120  # seconds
ROOT = pathlib.Path(__file__).resolve().parents[2]


def address(array):
    return array.ctypes.data


class Recorded:
    """Passes calls on and keeps their names."""

    def __init__(self, target, called):
        self._target = target
        self._called = called

    def __getattr__(self, name):
        self._called.add(name)
        return getattr(self._target, name)


def exchange(folder, name, rank, make):
    """The bytes that rank 0 makes."""
    path = pathlib.Path(folder, name)
    if rank == 0:
        data = bytes(make())
        path.with_suffix(".part").write_bytes(data)
        path.with_suffix(".part").rename(path)
        return data
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < end, "rank 0 has not made its id"
        time.sleep(0.01)
    return path.read_bytes()


def raises(error, call, *arguments):
    try:
        call(*arguments)
    except error as caught:
        return str(caught)
    raise AssertionError(f"{call} raised no {error}")


def use_cupy(rank, folder):
    from cupy.cuda import nccl

    assert nccl.available and nccl.get_version() >= 22800
    ids = exchange(folder, "cupy", rank, nccl.get_unique_id)
    called = set()
    real = nccl.NcclCommunicator(RANKS, ids, rank)
    comm = Recorded(real, called)
    assert (comm.size(), comm.rank_id(), comm.device_id()) == (RANKS, rank, -1)
    types = {"int8": nccl.NCCL_INT8, "uint8": nccl.NCCL_UINT8, "int32": nccl.NCCL_INT32,
             "uint32": nccl.NCCL_UINT32, "int64": nccl.NCCL_INT64, "uint64": nccl.NCCL_UINT64,
             "float16": nccl.NCCL_FLOAT16, "float32": nccl.NCCL_FLOAT32,
             "float64": nccl.NCCL_FLOAT64}
    n = 1000
    for name, number in types.items():
        mine = (np.arange(n) % 3 + rank).astype(name)
        every = np.stack([(np.arange(n) % 3 + r).astype(name) for r in range(RANKS)])
        out = np.zeros_like(mine)
        operations = {nccl.NCCL_SUM: every.sum(0), nccl.NCCL_MAX: every.max(0),
                      nccl.NCCL_MIN: every.min(0), nccl.NCCL_PROD: every.prod(0)}
        for op, expected in operations.items():
            comm.allReduce(address(mine), address(out), n, number, op, 0)
            assert (out == expected.astype(name)).all(), (name, op)
        comm.reduce(address(mine), address(out), n, number, nccl.NCCL_SUM, 1, 0)
        assert rank != 1 or (out == every.sum(0).astype(name)).all(), name
        comm.broadcast(address(mine), address(out), n, number, 2, 0)
        assert (out == every[2]).all(), name
        out = mine.copy()
        comm.bcast(address(out), n, number, 3, 0)
        assert (out == every[3]).all(), name
        gathered = np.zeros_like(every)
        comm.allGather(address(mine), address(gathered), n, number, 0)
        assert (gathered == every).all(), name
        part = np.zeros(n // RANKS, name)
        comm.reduceScatter(address(mine), address(part), n // RANKS, number, nccl.NCCL_SUM, 0)
        assert (part == every.sum(0).astype(name).reshape(RANKS, -1)[rank]).all(), name
        nccl.groupStart()
        comm.send(address(mine), n, number, (rank + 1) % RANKS, 0)
        comm.recv(address(out), n, number, (rank - 1) % RANKS, 0)
        nccl.groupEnd()
        assert (out == every[(rank - 1) % RANKS]).all(), name
    half = comm.commSplit(rank % 2, -rank)
    assert (half.size(), half.rank_id()) == (2, 1 - rank // 2)
    half.destroy()
    comm.check_async_error()
    error = raises(nccl.NcclError, real.allReduce, address(mine), address(out), 1, 99, 0, 0)
    assert "INVALID_ARGUMENT" in error.upper(), error
    local = comm.initAll(2)
    assert [one.rank_id() for one in local] == [0, 1]
    for one in local:
        one.destroy()
    comm.commSplit(0, 0).abort()
    called.add("abort")
    comm.destroy()
    left = {name for name in dir(nccl.NcclCommunicator) if not name.startswith("_")} - called
    assert left <= {"comm"}, f"not called: {left}"  # the handle's number
    return f"cupy: {len(called)} methods"


def reduce_by_nccl4py(b, comm, rank):
    mine = np.arange(RANKS * 8, dtype=np.float32) + rank
    every = np.stack([np.arange(RANKS * 8, dtype=np.float32) + r for r in range(RANKS)])
    n, f32, stream = mine.size, 7, 0
    out = np.zeros_like(mine)
    config = b.CollConfig()
    b.all_reduce(address(mine), address(out), n, f32, 0, comm, stream)
    assert (out == every.sum(0)).all()
    b.all_reduce_config(address(mine), address(out), n, f32, 2, comm, stream, config.ptr)
    assert (out == every.max(0)).all()
    for call, more in ((b.reduce, ()), (b.reduce_config, (config.ptr,))):
        call(address(mine), address(out), n, f32, 4, 0, comm, stream, *more)
        assert rank != 0 or (out == every.mean(0)).all()
    part = np.zeros(8, np.float32)
    for call, more in ((b.reduce_scatter, ()), (b.reduce_scatter_config, (config.ptr,))):
        call(address(mine), address(part), 8, f32, 0, comm, stream, *more)
        assert (part == every.sum(0).reshape(RANKS, 8)[rank]).all()
    factor = np.full(1, 2.0, np.float32)
    op = b.red_op_create_pre_mul_sum(address(factor), f32, 1, comm)
    b.group_start()
    b.all_reduce(address(mine), address(out), n, f32, op, comm, stream)
    b.red_op_destroy(op, comm)
    b.group_end()
    assert (out == 2 * every.sum(0)).all()


def move_by_nccl4py(b, comm, rank):
    blocks = np.arange(RANKS * 8, dtype=np.int64).reshape(RANKS, 8) + 1000 * rank
    all_blocks = np.stack([np.arange(RANKS * 8).reshape(RANKS, 8) + 1000 * r for r in range(RANKS)])
    i64, stream, config = 4, 0, b.CollConfig()
    out, one = np.zeros_like(blocks), np.zeros(8, np.int64)
    for more in ((), (config.ptr,)):
        suffix = "_config" if more else ""

        def call(name, *arguments):
            getattr(b, name + suffix)(*arguments, comm, stream, *more)

        call("broadcast", address(blocks), address(out), 32, i64, 1)
        assert (out == all_blocks[1]).all()
        call("all_gather", address(blocks), address(out), 8, i64)
        assert (out == all_blocks[:, 0]).all()
        call("allto_all", address(blocks), address(out), 8, i64)
        assert (out == all_blocks[:, rank]).all()
        call("gather", address(blocks), address(out), 8, i64, 2)
        assert rank != 2 or (out == all_blocks[:, 0]).all()
        call("scatter", address(blocks), address(one), 8, i64, 2)
        assert (one == all_blocks[2, rank]).all()
    one = blocks[0].copy()
    b.bcast(address(one), 8, i64, 3, comm, stream)
    assert (one == all_blocks[3, 0]).all()
    b.group_start()
    b.send(address(blocks), 8, i64, (rank + 1) % RANKS, comm, stream)
    b.recv(address(one), 8, i64, (rank - 1) % RANKS, comm, stream)
    b.group_end()
    assert (one == all_blocks[(rank - 1) % RANKS, 0]).all()
    b.group_start()
    b.all_reduce(address(blocks), address(out), 32, i64, 0, comm, stream)
    b.group_simulate_end()


def remember_by_nccl4py(b, comm):
    memory = b.mem_alloc(8192)
    handle = b.comm_register(comm, memory, 8192)
    b.comm_deregister(comm, handle)
    raises(Exception, b.comm_deregister, comm, handle)
    window = b.comm_window_register(comm, memory, 8192, 0)
    assert b.win_get_user_ptr(comm, window) == memory
    b.comm_window_deregister(comm, window)
    b.mem_free(memory)


def divide_by_nccl4py(b, comm, rank):
    half = b.comm_split(comm, rank % 2, rank, 0)
    assert (b.comm_count(half), b.comm_user_rank(half)) == (2, rank // 2)
    b.comm_finalize(half)
    b.comm_destroy(half)
    if rank != 3:
        smaller = b.comm_shrink(comm, [3], 1, 0, 0)
        assert b.comm_count(smaller) == 3
        b.comm_destroy(smaller)
    twin = b.comm_split(comm, 0, rank, 0)
    b.comm_revoke(twin, 0)
    assert b.comm_get_async_error(twin) == 0
    again = b.comm_split(twin, 0, rank, 0)
    assert b.comm_count(again) == RANKS
    b.comm_abort(again)
    b.comm_abort(twin)


def use_nccl4py(rank, folder):
    import nccl.core
    from nccl.bindings import nccl as bindings

    called = set()
    b = Recorded(bindings, called)
    assert b.get_version() >= 22800 and b.get_error_string(5) == "invalid usage"
    first, second, third = (exchange(folder, f"nccl4py{i}", rank, b.get_unique_id) for i in "123")
    config = bindings.Config()  # which has to outlive the call
    comms = [b.comm_init_rank(RANKS, bytearray(first), rank),
             b.comm_init_rank_config(RANKS, bytearray(second), rank, config.ptr),
             b.comm_init_rank_scalable(RANKS, rank, 1, bytearray(third), 0)]
    for comm in comms:
        assert (b.comm_count(comm), b.comm_user_rank(comm)) == (RANKS, rank)
        assert b.comm_get_async_error(comm) == 0
    reduce_by_nccl4py(b, comms[0], rank)
    move_by_nccl4py(b, comms[1], rank)
    remember_by_nccl4py(b, comms[2])
    divide_by_nccl4py(b, comms[2], rank)
    raises(Exception, bindings.all_reduce, 0, 0, 1, 99, 0, comms[0], 0)
    assert "datatype 99" in b.get_last_error(comms[0])
    for comm in comms:
        b.comm_destroy(comm)
    for one in b.comm_init_all(2, [0, 0]):
        b.comm_destroy(one)
    whole = nccl.core.Communicator.init(
        RANKS, rank, nccl.core.UniqueId.from_bytes(
            exchange(folder, "core", rank, lambda: nccl.core.get_unique_id().as_bytes)))
    assert (whole.nranks, whole.rank) == (RANKS, rank)
    whole.destroy()

    table = (ROOT / "src/nccl/functions.h").read_text()
    works = re.findall(r"FUNCTION\(works, \w+, nccl(\w+),", table)
    names = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in works}
    called.add("comm_shrink")  # not by the rank that is left out
    left = {name for name in names if hasattr(bindings, name)} - called
    assert not left, f"not called: {left}"
    return f"nccl4py: {len(called)} functions"


def main():
    if len(sys.argv) == 3:
        rank, folder = int(sys.argv[1]), sys.argv[2]
        said = [use_cupy(rank, folder), use_nccl4py(rank, folder)]
        if rank == 0:
            print("\n".join(said))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, str(rank), folder], env=os.environ)
                 for rank in range(RANKS)]
        end = time.monotonic() + LIMIT
        try:
            codes = [rank.wait(timeout=max(1, end - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main())
