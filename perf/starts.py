#!/usr/bin/env python3
"""How long it takes to make a communicator, and what one costs, with ranks as processes of this host.

    perf/starts.py --library build/release/lib/libsennit.so [--ranks 4] [--rounds 30] [--forwarders build/release/lib]

Printed are medians of --rounds, and the slowest round, in milliseconds. Of a round the slowest rank counts, from a common
beginning on; who makes the id does so within it. `first` is a fresh id whose ranks share no job yet, `fresh` one whose ranks
do, `split` and `group` are made out of a communicator. Descriptors and threads are those of a process beside what one
communicator takes. With --forwarders: how much longer `true` takes where a library that stands in front of NCCL or MPI
is preloaded.
"""

import argparse
import ctypes
import multiprocessing
import os
import queue
import statistics
import subprocess
import sys
import threading
import time

ID_BYTES = 128
MOST_SECONDS = 300  # until every rank has told what it measured
INT32, SUM = 2, 0


def load(path):
    library = ctypes.CDLL(path)
    library.sennit_last_error.restype = ctypes.c_char_p
    return library


class Rank:
    """One process's side; every step is taken by all."""

    def __init__(self, arguments, rank, barrier, page):
        self.library, self.rank, self.size = load(arguments.library), rank, arguments.ranks
        self.barrier, self.page = barrier, page

    def call(self, name, *rest):
        if getattr(self.library, "sennit_" + name)(*rest) != 0:
            raise RuntimeError(f"rank {self.rank}: {name}: {self.library.sennit_last_error().decode()}")

    def fresh(self):
        if self.rank == 0:
            made = ctypes.create_string_buffer(ID_BYTES)
            self.call("get_unique_id", made)
            self.page[:] = made.raw
        self.barrier.wait()
        comm = ctypes.c_void_p()
        self.call("comm_init_rank", ctypes.byref(comm), self.size, ctypes.create_string_buffer(bytes(self.page[:]), ID_BYTES),
                  self.rank, None)
        return comm

    def split(self, parent):
        comm = ctypes.c_void_p()
        self.call("comm_split", parent, 0, self.rank, ctypes.byref(comm))
        return comm

    def group(self, parent):
        comm = ctypes.c_void_p()
        self.call("comm_create_group", parent, (ctypes.c_int * self.size)(*range(self.size)), self.size, 0, ctypes.byref(comm))
        return comm

    def use(self, comm):
        mine, got = (ctypes.c_int32 * 100)(), (ctypes.c_int32 * 100)()
        self.call("all_reduce", mine, got, ctypes.c_size_t(100), INT32, SUM, comm)

    def end(self, comm):
        self.call("comm_finalize", comm)
        self.call("comm_destroy", comm)

    def timed(self, make):
        self.barrier.wait()
        begin = time.perf_counter()
        comm = make()
        return comm, 1e3 * (time.perf_counter() - begin)


def counts():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def measure(arguments, number, barrier, page, results):
    rank = Rank(arguments, number, barrier, page)
    times = {}
    for _ in range(arguments.rounds):
        comm, ms = rank.timed(rank.fresh)
        times.setdefault("first", []).append(ms)
        rank.end(comm)
        barrier.wait()
        time.sleep(0.05)  # for the job to be gone
    parent = rank.fresh()
    rank.use(parent)
    for what, make in (("fresh", rank.fresh), ("split", lambda: rank.split(parent)), ("group", lambda: rank.group(parent))):
        for _ in range(arguments.rounds):
            comm, ms = rank.timed(make)
            times.setdefault(what, []).append(ms)
            rank.use(comm)
            rank.end(comm)
    before = counts()
    alive = [rank.fresh() for _ in range(63)]
    for comm in alive:
        rank.use(comm)
    time.sleep(0.5)  # what serves ids ends after them
    after = counts()
    results.put((times, after[0] - before[0], after[1] - before[1]))
    barrier.wait()
    for comm in alive + [parent]:
        rank.end(comm)


def run(arguments, number, barrier, page, results):
    try:
        measure(arguments, number, barrier, page, results)
    except threading.BrokenBarrierError:
        pass  # the rank that broke it says why
    except Exception as error:  # whatever it is, the others must not wait for this rank
        results.put(f"rank {number}: {error}")
        barrier.abort()


def told_by(ranks, results):
    """What every rank has measured. Ends the program, and with it all ranks, where one has failed."""
    told, end = [], time.monotonic() + MOST_SECONDS
    while len(told) < len(ranks):
        ended = [(number, rank.exitcode) for number, rank in enumerate(ranks) if rank.exitcode]
        try:
            told.append(results.get(timeout=1))
        except queue.Empty:
            if ended:
                sys.exit(f"starts.py: rank {ended[0][0]} ended with {ended[0][1]}")
            if time.monotonic() > end:
                sys.exit(f"starts.py: not every rank is done after {MOST_SECONDS} s")
            continue
        if isinstance(told[-1], str):
            sys.exit(f"starts.py: {told[-1]}")
    return told


def preloading(folder):
    """Milliseconds that `true` takes longer, in turns with and without."""
    for name in ("libnccl.so.2", "libsennit_pmpi.so", "libsennit_pmpi_large.so"):
        path = os.path.join(folder, "sennit", name)
        if not os.path.exists(path):
            continue
        taken = {"": [], path: []}
        for _ in range(201):
            for preload, times in taken.items():
                begin = time.perf_counter()
                subprocess.run(["/bin/true"], env=os.environ | {"LD_PRELOAD": preload}, check=True)
                times.append(1e3 * (time.perf_counter() - begin))
        print(f"preloading {name:23} {statistics.median(taken[path]) - statistics.median(taken['']):8.2f} ms more")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libsennit.so")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--forwarders", help="the folder whose sennit/ has what is preloaded")
    arguments = parser.parse_args()
    barrier, page = multiprocessing.Barrier(arguments.ranks), multiprocessing.Array("B", ID_BYTES, lock=False)
    results = multiprocessing.Queue()
    ranks = [multiprocessing.Process(target=run, args=(arguments, r, barrier, page, results), daemon=True)
             for r in range(arguments.ranks)]
    for rank in ranks:
        rank.start()
    told = told_by(ranks, results)
    for rank in ranks:
        rank.join(MOST_SECONDS)
    for what in told[0][0]:
        slowest = [max(of_round) for of_round in zip(*(times[what] for times, _, _ in told))]
        print(f"{what:6} {statistics.median(slowest):8.2f} ms, at most {max(slowest):8.2f}")
    print(f"64 alive: {max(more for _, more, _ in told)} descriptors and {max(more for _, _, more in told)} threads more than one")
    if arguments.forwarders:
        preloading(arguments.forwarders)


if __name__ == "__main__":
    main()
