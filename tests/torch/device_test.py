"""PyTorch on tensors of CUDA devices, on the software GPU: its own backend "nccl", unmodified, by both of its process
groups, on our libnccl.so.2; and sennit_torch's. Four processes make each call on host memory by gloo and on the device,
and compare. No kernel of PyTorch's is there: tensors are made on the host and copied.

The programs of tests/soft_gpu, the library for NCCL and sennit_torch are looked for in build/torch.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build/torch"
RANKS = 4
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# ---- what each rank runs ----


def on_both(call, *tensors):
    """`call(*tensors)` on host memory and on the device, which returns the tensors that it has filled."""
    import torch

    expected = call(*[tensor.clone() for tensor in tensors])
    found = call(*[tensor.cuda() for tensor in tensors])
    assert len(expected) == len(found)
    for one, other in zip(expected, found):
        assert other.is_cuda
        assert torch.equal(one, other.cpu()), f"expected {one}, found {other.cpu()}"


def numbers(rank, count=1000, dtype=None):
    import torch

    return ((torch.arange(count) * 7 + rank * 3) % 5).to(dtype or torch.float32)


@check
def the_library_is_ours(rank, dist, torch):
    with open("/proc/self/maps") as maps:
        assert str(BUILD) in maps.read()
    assert torch.cuda.get_device_name() == "software GPU 0"
    if sys.argv[3] == "nccl":
        import ctypes

        address = ctypes.cast(ctypes.CDLL(None).ncclAllReduce, ctypes.c_void_p).value
        with open("/proc/self/maps") as maps:
            for line in maps:
                first, last = (int(end, 16) for end in line.split()[0].split("-"))
                if first <= address < last:
                    assert "sennit/libnccl.so" in line, line


@check
def all_reduce_of_all_types_and_operations(rank, dist, torch):
    operations = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
                  torch.int64]:
        for operation in operations:

            def call(x):
                dist.all_reduce(x, operation)
                return [x]

            on_both(call, numbers(rank, dtype=dtype))


@check
def average(rank, dist, torch):
    x = numbers(rank).cuda()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    expected = sum(numbers(other) for other in range(RANKS)) / RANKS
    assert torch.equal(x.cpu(), expected)


@check
def sums_of_products(rank, dist, torch):
    for factor in [0.5, torch.tensor([0.25]).cuda()]:
        x = numbers(rank).cuda()
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        expected = float(factor) * sum(numbers(other) for other in range(RANKS))
        assert torch.equal(x.cpu(), expected)


@contextlib.contextmanager
def held(stream):
    """It starts nothing more, until it is let go."""
    import ctypes

    gpu = ctypes.CDLL(BUILD / "soft_gpu/libcuda.so.1")
    gpu.soft_gpu_hold(ctypes.c_void_p(stream.cuda_stream))
    try:
        yield
    finally:
        gpu.soft_gpu_release(ctypes.c_void_p(stream.cuda_stream))


@check
def factors_are_read_in_the_streams_order(rank, dist, torch):
    """Copies in the stream change the factor between calls, and none has begun when the last is made."""
    factors = [0.5, 2.0, 4.0]
    following, factor = torch.tensor(factors).cuda(), torch.zeros(1).cuda()
    results = [numbers(rank).cuda() for _ in factors]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with held(stream), torch.cuda.stream(stream):
        for i, x in enumerate(results):
            factor.copy_(following[i : i + 1])
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor), async_op=True).wait()
    torch.cuda.synchronize()
    whole = sum(numbers(other) for other in range(RANKS))
    for x, one in zip(results, factors):
        assert torch.equal(x.cpu(), one * whole), f"factor {one}: expected {one * whole}, found {x.cpu()}"


@check
def factors_are_read_anew_by_each_replay(rank, dist, torch):
    x, factor = numbers(rank).cuda(), torch.zeros(1).cuda()
    total = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        total.copy_(x)
        dist.all_reduce(total, dist._make_nccl_premul_sum(factor))
    for turn in range(10):
        factor.copy_(torch.full((1,), float(turn)))
        graph.replay()
        assert torch.equal(total.cpu(), turn * sum(numbers(other) for other in range(RANKS))), turn


@check
def sizes_from_one_element_to_four_mebibytes(rank, dist, torch):
    for count in [1, 3, 1000, 65537, 1 << 20]:

        def call(x):
            dist.all_reduce(x)
            return [x]

        on_both(call, numbers(rank, count))


@check
def broadcast_and_reduce(rank, dist, torch):
    for root in range(RANKS):

        def sent(x):
            dist.broadcast(x, root)
            return [x]

        def summed(x):
            dist.reduce(x, root)
            return [x] if rank == root else []

        on_both(sent, numbers(rank))
        on_both(summed, numbers(rank))


@check
def gathered_by_all(rank, dist, torch):
    def as_list(x, *parts):
        dist.all_gather(list(parts), x)
        return parts

    def as_one(x, whole):
        dist.all_gather_into_tensor(whole, x)
        return [whole]

    on_both(as_list, numbers(rank), *[torch.zeros(1000) for _ in range(RANKS)])
    on_both(as_one, numbers(rank), torch.zeros(RANKS * 1000))


@check
def reduced_and_scattered(rank, dist, torch):
    whole = numbers(rank, RANKS * 500).cuda()
    expected = sum(numbers(other, RANKS * 500) for other in range(RANKS))[rank * 500 : (rank + 1) * 500]
    out = torch.zeros(500).cuda()
    dist.reduce_scatter_tensor(out, whole)
    assert torch.equal(out.cpu(), expected)
    out = torch.zeros(500).cuda()
    dist.reduce_scatter(out, list(whole.chunk(RANKS)))
    assert torch.equal(out.cpu(), expected)


@check
def all_to_all(rank, dist, torch):
    def equal(out, x):
        dist.all_to_all_single(out, x)
        return [out]

    on_both(equal, torch.zeros(RANKS * 30), numbers(rank, RANKS * 30))
    sent, received = [r + 1 for r in range(RANKS)], [rank + 1] * RANKS

    def uneven(out, x):
        dist.all_to_all_single(out, x, received, sent)
        return [out]

    on_both(uneven, torch.zeros(sum(received)), numbers(rank, sum(sent)))
    outputs = [torch.zeros(5).cuda() for _ in range(RANKS)]
    dist.all_to_all(outputs, [torch.full((5,), 10.0 * rank + other).cuda() for other in range(RANKS)])
    for other in range(RANKS):
        assert torch.equal(outputs[other].cpu(), torch.full((5,), 10.0 * other + rank))


@check
def gathered_and_scattered(rank, dist, torch):
    for root in range(RANKS):

        def gather(x, *parts):
            dist.gather(x, list(parts) if rank == root else None, root)
            return parts if rank == root else []

        def scatter(x, *parts):
            dist.scatter(x, list(parts) if rank == root else None, root)
            return [x]

        on_both(gather, numbers(rank), *[torch.zeros(1000) for _ in range(RANKS)])
        on_both(scatter, torch.zeros(1000), *[numbers(r) for r in range(RANKS)])


@check
def sent_and_received(rank, dist, torch):
    def around(x, out):
        if rank == 0:
            dist.send(x, 1)
            dist.recv(out, RANKS - 1)
        else:
            dist.recv(out, rank - 1)
            dist.send(x, (rank + 1) % RANKS)
        return [out]

    on_both(around, numbers(rank), torch.zeros(1000))


@check
def sent_and_received_in_batches(rank, dist, torch):
    def exchange(x, out):
        operations = [dist.P2POp(dist.isend, x, (rank + 1) % RANKS), dist.P2POp(dist.irecv, out, (rank - 1) % RANKS)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return [out]

    for count in [10, 300_000]:
        on_both(exchange, numbers(rank, count), torch.zeros(count))


@check
def coalesced(rank, dist, torch):
    from torch.distributed.distributed_c10d import _coalescing_manager

    group, device = dist.group.WORLD, torch.device("cuda")
    sums = [numbers(rank, 100 + i).cuda() for i in range(3)]
    with _coalescing_manager(group, device):
        for x in sums:
            dist.all_reduce(x)
    for i, x in enumerate(sums):
        assert torch.equal(x.cpu(), sum(numbers(other, 100 + i) for other in range(RANKS)))
    wholes = [torch.zeros(RANKS * (50 + i)).cuda() for i in range(3)]
    with _coalescing_manager(group, device, async_ops=True) as out:
        for i, whole in enumerate(wholes):
            dist.all_gather_into_tensor(whole, numbers(rank, 50 + i).cuda())
    out.wait()
    for i, whole in enumerate(wholes):
        assert torch.equal(whole.cpu(), torch.cat([numbers(other, 50 + i) for other in range(RANKS)]))
    parts = [torch.zeros(20 + i).cuda() for i in range(3)]
    with _coalescing_manager(group, device):
        for i, part in enumerate(parts):
            dist.reduce_scatter_tensor(part, numbers(rank, RANKS * (20 + i)).cuda())
    for i, part in enumerate(parts):
        whole = sum(numbers(other, RANKS * (20 + i)) for other in range(RANKS))
        assert torch.equal(part.cpu(), whole.chunk(RANKS)[rank])


@check
def works_order_streams(rank, dist, torch):
    """What follows wait() in a stream follows the call, and nobody waits on the host."""
    expected = sum(numbers(other, 100_000) for other in range(RANKS))
    copies, streams = [], [torch.cuda.Stream() for _ in range(3)]
    for i in range(12):
        with torch.cuda.stream(streams[i % 3]):
            x = numbers(rank, 100_000).cuda(non_blocking=True)
            work = dist.all_reduce(x, async_op=True)
            copy = torch.empty_like(x)
            work.wait()
            copy.copy_(x)
            x.copy_(copy, non_blocking=True)  # and x may go
            copies.append(copy)
    torch.cuda.synchronize()
    for copy in copies:
        assert torch.equal(copy.cpu(), expected)


@check
def works_that_nobody_keeps(rank, dist, torch):
    kept = [numbers(rank, 50_000).cuda() for _ in range(8)]
    for x in kept:
        dist.all_reduce(x, async_op=True)
        dist.all_reduce(numbers(rank, 50_000).cuda(), async_op=True)
    dist.barrier(device_ids=[0])
    torch.cuda.synchronize()
    for x in kept:
        assert torch.equal(x.cpu(), sum(numbers(other, 50_000) for other in range(RANKS)))


@check
def futures(rank, dist, torch):
    x = numbers(rank, 1000).cuda()
    work = dist.all_reduce(x, async_op=True)
    out = work.get_future().then(lambda future: future.value()[0]).wait()
    torch.cuda.synchronize()
    assert torch.equal(out.cpu(), sum(numbers(other, 1000) for other in range(RANKS)))


@check
def graphs(rank, dist, torch):
    """What is captured once and replayed, between calls that are not."""
    x = numbers(rank).cuda()
    total = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        total.copy_(x)
        dist.all_reduce(total)
    for turn in range(20):
        x.copy_(numbers(rank + turn))
        graph.replay()
        expected = sum(numbers(other + turn) for other in range(RANKS))
        assert torch.equal(total.cpu(), expected)
        dist.all_reduce(x)
        assert torch.equal(x.cpu(), expected)


@check
def barriers(rank, dist, torch):
    for _ in range(5):
        dist.barrier(device_ids=[0])


def barrier_behind_a_held_stream(rank, dist, torch, **options):
    """It returns while the stream is held. It is over when the streams of all ranks have come to it, and not before, and so
    is what another stream does behind it. The thread waits in wait() alone."""
    # PyTorch's newer group for NCCL has a kernel that holds a stream up behind a barrier.
    streams_follow = os.environ.get("TORCH_DIST_USE_NCCL2") != "1"
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    followed = torch.cuda.Event()
    x, y = numbers(rank).cuda(), torch.zeros(1000).cuda()
    stream.wait_stream(torch.cuda.current_stream())

    def over():
        return work.is_completed() or (streams_follow and followed.query())

    with contextlib.ExitStack() as holds:
        holds.enter_context(held(stream))
        with torch.cuda.stream(stream):
            y.copy_(x)
            work = dist.barrier(async_op=True, **options)
        if streams_follow:
            with torch.cuda.stream(other):
                work.block_current_stream()
                followed.record()
        assert not over()
        dist.all_reduce(torch.zeros(1))  # the others' as well, before any of them goes on
        if rank != 0:
            holds.close()
            time.sleep(0.2)
        assert not over()
        dist.all_reduce(torch.zeros(1))
    work.wait()
    assert work.is_completed() and torch.equal(y.cpu(), numbers(rank))
    other.synchronize()
    assert followed.query()


@check
def barriers_that_nobody_waits_for(rank, dist, torch):
    barrier_behind_a_held_stream(rank, dist, torch)
    barrier_behind_a_held_stream(rank, dist, torch, device_ids=[0])


@check
def subgroups(rank, dist, torch):
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    x = numbers(rank).cuda()
    dist.all_reduce(x, group=halves[rank % 2])
    assert torch.equal(x.cpu(), numbers(rank % 2) + numbers(rank % 2 + 2))
    parts = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    y = numbers(rank).cuda()
    dist.all_reduce(y, group=parts)
    assert torch.equal(y.cpu(), numbers(rank // 2 * 2) + numbers(rank // 2 * 2 + 1))
    dist.destroy_process_group(halves[rank % 2])


@check
def an_abort_while_a_rank_does_not_come(rank, dist, torch):
    """The last one: streams go on, within two seconds."""
    x = numbers(rank).cuda()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 0:
        time.sleep(4)
    else:
        dist.all_reduce(x, async_op=True)
        time.sleep(0.5)
        began = time.monotonic()
        aborted = threading.Thread(target=dist.distributed_c10d._abort_process_group)
        aborted.start()
        torch.cuda.synchronize()
        aborted.join()
        took = time.monotonic() - began
        assert took < 2, f"took {took:.1f} s"


def start(dist, torch, backends, rank, store, device_id=None):
    import datetime

    torch.set_num_threads(1)
    dist.init_process_group(backends, init_method=f"file://{store}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=60), device_id=device_id)


def all_checks(rank, backend, store):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    start(dist, torch, f"cpu:gloo,cuda:{backend}", rank, store, torch.device("cuda:0"))
    for function in CHECKS:
        print(f"rank {rank}: {function.__name__}", flush=True)
        function(rank, dist, torch)  # where it fails the others wait for this rank, and are ended
    sys.stdout.flush()
    os._exit(0)  # after an abort there is nothing to say goodbye to


def one_group_for_both(rank, backend, store):
    """Calls on host memory and on the device in turns, by one group, which ends as groups do."""
    import torch
    import torch.distributed as dist

    start(dist, torch, backend, rank, store)
    for _ in range(10):
        pending = []
        for place in [torch.device("cpu"), torch.device("cuda")]:
            x = numbers(rank, 1000).to(place)
            pending.append((x, dist.all_reduce(x, async_op=True)))
        for x, work in pending:
            work.wait()
            assert torch.equal(x.cpu(), sum(numbers(other, 1000) for other in range(RANKS)))
    on_both(lambda x: (dist.all_reduce(x), [x])[1], numbers(rank))
    received = torch.zeros(1000)
    operations = [dist.P2POp(dist.isend, numbers(rank), (rank + 1) % RANKS),
                  dist.P2POp(dist.irecv, received, (rank - 1) % RANKS)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.equal(received, numbers((rank - 1) % RANKS))
    barrier_behind_a_held_stream(rank, dist, torch)
    barrier_behind_a_held_stream(rank, dist, torch, device_ids=[0])
    objects = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(RANKS)]
    dist.barrier()
    dist.destroy_process_group()


def what_is_off(rank, backend, store):
    """Each is an error that says what, and the group goes on."""
    import torch
    import torch.distributed as dist

    start(dist, torch, backend, rank, store)
    x, whole = numbers(rank), torch.zeros(RANKS * 1000).cuda()

    def says(words, call, *arguments):
        try:
            call(*arguments)
        except (RuntimeError, ValueError) as error:
            assert words in str(error), f"{words} is not in: {error}"
        else:
            raise AssertionError(f"no error: {words}")

    says("those of a call are on one device", dist.all_gather_into_tensor, whole, x)
    says("sparse ones are summed in host memory alone", dist.all_reduce,
         torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (3,)).to("cuda"))
    says("name the source", dist.recv, x.cuda())
    says("elements of", dist.all_reduce, torch.zeros(4, dtype=torch.int16).cuda())
    x = x.cuda()
    dist.all_reduce(x)
    assert torch.equal(x.cpu(), sum(numbers(other) for other in range(RANKS)))
    dist.destroy_process_group()


def ends_of_waiting(rank, backend, store):
    """Memory, streams and batches, where a program does what it need not."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _coalescing_manager

    start(dist, torch, backend, rank, store)
    expected = sum(numbers(other, 50_000) for other in range(RANKS))
    # Waited for in another stream than the one that made the call, and its own temporaries.
    side = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(side):
            outputs = [torch.empty(50_000, device="cuda") for _ in range(RANKS)]
            work = dist.all_to_all(outputs, [numbers(rank, 50_000).cuda() for _ in range(RANKS)], async_op=True)
        work.wait()
        with torch.cuda.stream(side):
            torch.empty(RANKS * 50_000, device="cuda").copy_(torch.full((RANKS * 50_000,), -1.0))
        for other, output in enumerate(outputs):
            assert torch.equal(output.cpu(), numbers(other, 50_000))
    # Ordered by block_current_stream() alone.
    x = numbers(rank, 50_000).cuda()
    y = torch.empty_like(x)
    dist.all_reduce(x, async_op=True).block_current_stream()
    y.copy_(x)
    assert torch.equal(y.cpu(), expected)
    # A batch that an exception has left open is forgotten; a batch is behind each stream that its calls were made in.
    group, device = dist.group.WORLD, torch.device("cuda")
    try:
        with _coalescing_manager(group, device):
            dist.broadcast(numbers(rank).cuda(), 0)
            raise KeyError
    except KeyError:
        dist.distributed_c10d._world.pg_coalesce_state.pop(group, None)
    sent = torch.empty(50_000, device="cuda")
    with _coalescing_manager(group, device):
        with torch.cuda.stream(side):
            sent.copy_(numbers(rank, 50_000).cuda())
            dist.broadcast(sent, 0)
    assert torch.equal(sent.cpu(), numbers(0, 50_000))
    # Works of a batch on host memory are one, with a future.
    received = torch.zeros(1000)
    operations = [dist.P2POp(dist.isend, numbers(rank), (rank + 1) % RANKS),
                  dist.P2POp(dist.irecv, received, (rank - 1) % RANKS)]
    [work] = dist.batch_isend_irecv(operations)
    work.get_future().wait()
    assert torch.equal(received, numbers((rank - 1) % RANKS))
    # The end of a group waits for a rank that is late.
    if rank == 1:
        time.sleep(2.5)
    x = numbers(rank, 50_000).cuda()
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert torch.equal(x.cpu(), expected)


def a_time_is_given(rank, backend, store):
    """To wait(): then the thread waits, and where a rank does not come in time the group is aborted."""
    import datetime

    import torch
    import torch.distributed as dist

    start(dist, torch, backend, rank, store)
    x = numbers(rank).cuda()
    assert dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20))
    if rank == 1:
        time.sleep(3)
        return
    work = dist.all_reduce(x, async_op=True)
    began = time.monotonic()
    try:
        work.wait(datetime.timedelta(seconds=1))
    except dist.DistBackendError as error:
        assert "Timed out" in str(error) or "aborted" in str(error), error
    else:
        raise AssertionError("no error")
    torch.cuda.synchronize()
    assert time.monotonic() - began < 3


def exits_with_calls_out(rank, backend, store):
    import torch
    import torch.distributed as dist

    start(dist, torch, backend, rank, store)
    x = numbers(rank).cuda()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 0:
        dist.all_reduce(x, async_op=True)  # and nobody else comes


def a_rank_is_killed(rank, backend, store):
    import signal

    import torch
    import torch.distributed as dist

    start(dist, torch, backend, rank, store)
    x = numbers(rank).cuda()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    try:
        work.wait()
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError("no error")


# ---- the test ----


class OnTheSoftwareGpu(unittest.TestCase):
    def run_on(self, what, backend, codes=(0,) * RANKS, within=120, **variables):
        libraries = [BUILD / "soft_gpu/libcudart.so.13", BUILD / "lib/sennit/libnccl.so.2"]
        for library in libraries:
            self.assertTrue(library.exists(), f"{library} is not built")
        environment = os.environ | {"LD_PRELOAD": " ".join(map(str, libraries)), "OMP_NUM_THREADS": "1",
                                    "PYTHONPATH": str(BUILD / "python")} | variables
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as files:
            logs = [files.enter_context(open(f"{folder}/{rank}.log", "w+")) for rank in range(RANKS)]
            ranks = [
                subprocess.Popen([sys.executable, __file__, what.__name__, str(rank), backend, f"{folder}/store"],
                                 env=environment, stdout=logs[rank], stderr=subprocess.STDOUT)
                for rank in range(RANKS)
            ]
            deadline = time.monotonic() + within
            while time.monotonic() < deadline and any(rank.poll() is None for rank in ranks):
                if any(rank.poll() not in (None, code) for rank, code in zip(ranks, codes)):
                    break
                time.sleep(0.1)
            ended = tuple(rank.poll() for rank in ranks)
            for rank in ranks:
                rank.kill()
                rank.wait()
            texts = [pathlib.Path(log.name).read_text() for log in logs]
        self.assertEqual(ended, codes, "\n".join(texts))

    def test_the_backend_nccl_of_old(self):
        self.run_on(all_checks, "nccl", TORCH_DIST_USE_NCCL2="0")

    def test_the_backend_nccl_of_today(self):
        self.run_on(all_checks, "nccl", TORCH_DIST_USE_NCCL2="1")

    def test_the_backend_sennit(self):
        self.run_on(all_checks, "sennit")

    def test_sennit_for_both_kinds_of_memory(self):
        self.run_on(one_group_for_both, "sennit")
        self.run_on(one_group_for_both, "cpu:sennit,cuda:sennit")

    def test_what_is_off_is_named(self):
        self.run_on(what_is_off, "sennit")

    def test_streams_memory_and_batches(self):
        self.run_on(ends_of_waiting, "sennit", within=60)

    def test_under_the_checks_of_pytorch(self):
        self.run_on(one_group_for_both, "sennit", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    def test_a_time_to_wait(self):
        self.run_on(a_time_is_given, "sennit", within=60)

    def test_a_process_that_exits_with_calls_out(self):
        self.run_on(exits_with_calls_out, "sennit", within=30)

    def test_a_rank_that_is_killed(self):
        self.run_on(a_rank_is_killed, "sennit", codes=(0, -9, 0, 0), within=30)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in globals() and len(sys.argv) == 5:
        if "sennit" in sys.argv[3]:
            import sennit_torch  # noqa: F401
        globals()[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
        sys.exit(0)
    unittest.main(verbosity=2)
