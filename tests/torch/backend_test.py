"""What the backend "sennit" does beyond PyTorch's own tests: futures, time-outs, ends and failures, with real processes."""

import contextlib
import datetime
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest

import numpy
import sennit
import sennit_torch
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch._C._distributed_c10d import ErrorType
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

torch.set_num_threads(1)
ERROR = dist.DistBackendError


def _process(rank, size, body, options, folder, pipe):
    try:
        if options.pop("detail", False):
            dist.set_debug_level(dist.DebugLevel.DETAIL)
        options.setdefault("timeout", 60)
        options["timeout"] = datetime.timedelta(seconds=options["timeout"])
        options.setdefault("backend", "sennit")
        dist.init_process_group(init_method=f"file://{folder}/store", rank=rank, world_size=size, **options)
        pipe.send((True, body(rank)))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:  # noqa: BLE001: all of them are told to the test
        pipe.send((False, traceback.format_exc()))


def on_ranks(size, body, *, killed=(), **options):
    """body(rank) on `size` ranks, each a process; returns what each returned, in at most a minute."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(size)]
        processes = [
            context.Process(target=_process, args=(rank, size, body, dict(options), folder, pipes[rank][1]))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        results = []
        try:
            deadline = time.monotonic() + 60
            for rank, (receiving, _) in enumerate(pipes):
                if rank in killed:
                    results.append(None)
                    continue
                assert receiving.poll(max(deadline - time.monotonic(), 0)), f"rank {rank} hangs"
                passed, result = receiving.recv()
                assert passed, f"rank {rank}: {result}"
                results.append(result)
            for rank, process in enumerate(processes):
                process.join(max(deadline - time.monotonic(), 0.1))
                assert process.exitcode is not None, f"rank {rank} hangs at its end"
                assert rank in killed or process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
        finally:
            for process in processes:
                process.kill()
        return results


@contextlib.contextmanager
def within(seconds):
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"took {took:.1f} s"


def interrupt_soon():
    """As by Control-C, also where this was started in the background of a shell, which has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


def error_of(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "none"


def summed(value=1.0):
    return dist.all_reduce(torch.full((4,), value), async_op=True)


class Futures(unittest.TestCase):
    def test_a_callback_may_wait_for_another_call(self):
        def body(_):
            outer = summed().get_future()
            for _ in range(3):  # each waits within the one before
                outer = outer.then(lambda future: summed(future.value()[0][0].item()).get_future().wait())
            return outer.wait()[0][0].item()

        self.assertEqual(on_ranks(2, body), [16.0, 16.0])

    def test_callbacks_that_wait_for_each_other(self):
        def body(rank):
            second = torch.futures.Future()

            def first(_):
                return second.wait()

            # Of what has completed already PyTorch runs the callback here, so that is not the case yet.
            waits = dist.irecv(torch.zeros(1), 1 - rank).get_future().then(first)
            dist.barrier()
            dist.send(torch.ones(1), 1 - rank)
            summed(3).get_future().add_done_callback(lambda future: second.set_result(future.value()[0][0].item()))
            return waits.wait()

        self.assertEqual(on_ranks(2, body), [6.0, 6.0])

    def test_a_receive_that_nobody_serves_holds_up_no_other(self):
        def body(rank):
            x = torch.zeros(1)
            kept = dist.irecv(x, 1 - rank)
            future = kept.get_future()
            dist.irecv(torch.zeros(1), 1 - rank, tag=5)  # and nobody keeps its Work
            for _ in range(20):
                with within(5):
                    summed().get_future().wait()
            dist.barrier()
            assert not future.done()
            dist.barrier()
            dist.send(torch.ones(1), 1 - rank)
            dist.send(torch.ones(1), 1 - rank, tag=5)
            return future.wait()[0].item()

        self.assertEqual(on_ranks(2, body), [1.0, 1.0])

    def test_a_group_that_ends_in_a_callback(self):
        def body(rank):
            group = [dist.new_group([rank], use_local_synchronization=True)]
            work = [dist.all_reduce(torch.ones(1), group=group[0], async_op=True)]
            done = threading.Event()

            def last(_):
                dist.destroy_process_group(group.pop())
                work.clear()
                done.set()

            work[0].get_future().add_done_callback(last)
            return done.wait(10)

        self.assertEqual(on_ranks(2, body), [True, True])

    def test_a_call_that_nobody_waits_for_fills_its_memory(self):
        def body(rank):
            x = torch.zeros(4, 4).t()[:, :2]
            dist.all_reduce(x.fill_(rank + 1), async_op=True)
            while x[0, 0] != 3:
                time.sleep(0.001)
            return x.sum().item()

        self.assertEqual(on_ranks(2, body), [24.0, 24.0])

    def test_a_future_of_a_call_that_was_waited_for(self):
        def body(rank):
            values = []
            for _ in range(10):
                work = summed()
                work.wait()
                future = work.get_future()
                assert future.done()
                values.append(future.value()[0][0].item())
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            failed = dist.irecv(torch.zeros(1), 1)
            assert "DistBackendError" in error_of(failed.wait)
            future = failed.get_future()
            assert future.done() and "DistBackendError" in error_of(future.wait)
            return values

        self.assertEqual(on_ranks(2, body, killed=(1,)), [[2.0] * 10, None])

    def test_power_sgd(self):
        def body(rank):
            torch.manual_seed(1)
            model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
            state = power_sgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            model.register_comm_hook(state, power_sgd.powerSGD_hook)
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            data = torch.randn(16, 64, generator=torch.Generator().manual_seed(rank))
            losses = []
            for _ in range(20):
                loss = model(data).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            weights = [torch.zeros(8, 64) for _ in range(2)]
            dist.all_gather(weights, model.module[2].weight.detach())
            assert torch.equal(*weights)
            return losses[-1] < losses[0] / 2

        self.assertEqual(on_ranks(2, body), [True, True])


class Package(unittest.TestCase):
    def test_it_knows_the_release_of_builds_between_releases(self):
        for rest in "", "+cu132", "a0+git1234567", "a0+5228986c39.nv26.10", ".dev20261101", "rc1":
            self.assertEqual(sennit_torch._release("2.15.0" + rest), "2.15.0")


class Ends(unittest.TestCase):
    def test_a_call_that_times_out_fails_its_group(self):
        def body(rank):
            dist.barrier()
            if rank == 1:
                time.sleep(1.5)
                return error_of(dist.barrier)
            group_error = error_of(dist.all_reduce, torch.ones(4))
            with within(2):
                dist.destroy_process_group()
            return group_error

        for error in (got := on_ranks(3, body, timeout=0.5))[::2]:
            self.assertRegex(error, "DistBackendError: sennit: all_reduce: .*[Tt]imed out")
            self.assertRegex(error, r"rank 1\b")
        self.assertRegex(got[1], "DistBackendError")

    def test_a_group_waits_as_long_as_its_own_time_out(self):
        def body(rank):
            group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=30))
            if rank == 1:
                time.sleep(3)
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            return x.tolist()

        self.assertEqual(on_ranks(2, body, timeout=1), [[2.0, 2.0]] * 2)

    def test_a_work_that_is_polled_times_out(self):
        def body(rank):
            dist.barrier()
            if rank == 0:
                work = summed()
                with within(5):
                    while not work.is_completed():
                        time.sleep(0.01)
                return error_of(work.wait)
            time.sleep(1.5)

        self.assertRegex(on_ranks(2, body, timeout=0.5)[0], "[Tt]imed out")

    def test_a_start_names_who_does_not_come(self):
        def body(rank):
            limit = datetime.timedelta(seconds=0.5)
            return error_of(dist.new_group, [0, 1, 2], timeout=limit) if rank != 2 else time.sleep(1.5)

        self.assertRegex(on_ranks(3, body)[0], "DistBackendError.*did not come within 500 ms: 2")

    def test_control_c_ends_a_start(self):
        def start(store, rank):
            limit = 20.0  # seconds, after which it fails otherwise
            return sennit_torch._core.process_group(store, rank, 2, limit, "sennit", "0", [], False)

        def others_know(store):
            store.set("sennit/start/word", bytes(sennit.unique_id()))

        # Nobody else comes: rank 0 waits in the store, rank 1 as well, and then in the library, with an id.
        for rank, prepare in (0, None), (1, None), (1, others_know):
            with tempfile.TemporaryDirectory() as folder:
                for store in dist.HashStore(), dist.FileStore(f"{folder}/store", 2):
                    if prepare:
                        prepare(store)
                    with self.assertRaises(KeyboardInterrupt):
                        interrupt_soon()
                        start(store, rank)
                    if not prepare:  # else rank 0 has seen it
                        self.assertFalse(store.check([f"sennit/start/{rank}"]))

    def test_control_c_ends_a_monitored_barrier(self):
        def body(rank):
            store = dist.distributed_c10d._get_default_store()
            if rank == 0:
                return store.wait(["interrupted"])
            try:
                interrupt_soon()
                dist.monitored_barrier()
            except KeyboardInterrupt:
                store.set("interrupted", "1")
                return "interrupted"

        self.assertEqual(on_ranks(2, body, timeout=20), [None, "interrupted"])

    @unittest.skipUnless(hasattr(dist, "split_group"), "PyTorch of before 2.5")
    def test_a_split_names_who_does_not_come(self):
        def body(rank):
            if rank == 2:
                return time.sleep(1.5)
            limit = datetime.timedelta(seconds=0.5)
            return error_of(dist.split_group, split_ranks=[[0, 1, 2]], timeout=limit)

        self.assertRegex(on_ranks(3, body)[0], "DistBackendError.*did not come within 500 ms: 2")

    def test_a_future_times_out_too(self):
        def body(rank):
            dist.barrier()
            if rank == 0:
                with within(5):
                    return error_of(summed().get_future().wait)
            time.sleep(1.5)

        self.assertRegex(on_ranks(2, body, timeout=0.5)[0], "[Tt]imed out")

    def test_the_end_of_a_group_waits_for_a_second_at_most(self):
        def body(rank):
            groups = [dist.new_group([0, 1]) for _ in range(2)]
            works = [dist.irecv(torch.zeros(1), 1 - rank, group=group) for group in groups]
            works[0].get_future()
            dist.irecv(torch.zeros(1), 1 - rank)
            dist.barrier()
            with within(2):
                dist.destroy_process_group(groups[0])
            return error_of(works[0].wait)

        for error in on_ranks(2, body):
            self.assertIn("abort", error)

    def test_a_work_after_the_end_of_its_group(self):
        def body(rank):
            x = torch.full((1 << 20,), rank + 1.0)
            work = dist.all_reduce(x, async_op=True)
            dist.destroy_process_group()
            work.wait()
            return x[-1].item()

        self.assertEqual(on_ranks(2, body), [3.0, 3.0])

    def exit_of(self, code):
        """Rank 0 ends with calls out, by its interpreter's exit handlers, while rank 1 lives on."""
        with tempfile.TemporaryDirectory() as folder:
            head = (
                "import atexit, sys\n"
                "atexit.register(lambda: print('exits', flush=True))\n"  # after sennit_torch's
                "import datetime, torch, torch.distributed as dist, sennit_torch\n"
                "rank = int(sys.argv[1])\n"
                f"dist.init_process_group('sennit', init_method='file://{folder}/store', rank=rank, world_size=2)\n"
                "dist.barrier()\n"
            )
            code = head + code + "\nprint('ends', flush=True)\nrank and input()\n"
            both = [
                subprocess.Popen(
                    [sys.executable, "-c", code, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                for rank in range(2)
            ]
            try:
                for one in both:
                    self.assertEqual(one.stdout.readline(), "ends\n")
                with within(2):
                    self.assertEqual(both[0].stdout.readline(), "exits\n")
                self.assertEqual(both[0].wait(10), 0)  # PyTorch alone needs two seconds
                both[1].communicate("\n", 20)
                self.assertEqual(both[1].returncode, 0)
            finally:
                for one in both:
                    one.kill()
                    one.wait()
                    one.stdout.close()
                    one.stdin.close()

    def test_an_exit_with_calls_out(self):
        self.exit_of(
            "kept = dist.irecv(torch.zeros(1), 1 - rank)\n"
            "dist.irecv(torch.zeros(1), 1 - rank, tag=1)\n"
            "future = dist.irecv(torch.zeros(1), 1 - rank, tag=2).get_future().then(lambda f: f.value())\n"
        )

    def test_an_exit_after_a_time_out(self):
        self.exit_of(
            "work = dist.irecv(torch.zeros(1), 1 - rank)\n"
            "try:\n"
            "    work.wait(datetime.timedelta(seconds=0.2))\n"
            "except dist.DistBackendError:\n"
            "    pass\n"
        )

    def test_an_exit_without_an_end(self):
        self.exit_of("")

    def test_an_abort_out_of_another_thread(self):
        def body(rank):
            dist.barrier()
            if rank == 1:
                threading.Timer(0.3, dist.group.WORLD.abort).start()
            with within(2.3):
                return error_of(dist.recv, torch.zeros(1), 1 - rank)

        for error in on_ranks(2, body):
            self.assertRegex(error, "DistBackendError: sennit: recv: .*abort")

    def test_an_abort_beside_an_end(self):
        def body(rank):
            for _ in range(30):
                group = dist.new_group([rank], use_local_synchronization=True)
                threads = [threading.Thread(target=group.abort) for _ in range(4)]
                for thread in threads:
                    thread.start()
                group.shutdown()
                for thread in threads:
                    thread.join()
            return error_of(dist.barrier, group=group)

        for error in on_ranks(1, body):
            self.assertIn("was shut down", error)


class Failures(unittest.TestCase):
    def test_a_killed_rank_is_named(self):
        def body(rank):
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with within(20):
                while (error := error_of(dist.all_reduce, torch.ones(1000))) == "none":
                    pass
            return error

        for error in on_ranks(3, body, killed=(1,))[::2]:
            self.assertRegex(error, r"DistBackendError: sennit: all_reduce: .*\b1\b")

    def test_calls_that_differ(self):
        def body(rank):
            return error_of(dist.all_reduce, torch.ones(3 + rank))

        for error in on_ranks(2, body):
            self.assertRegex(error, "DistBackendError: sennit: all_reduce: .*count")

        def other(rank):
            x = torch.ones(4)
            return error_of(dist.broadcast, x, 0) if rank else error_of(dist.all_reduce, x)

        for error in on_ranks(2, other):
            self.assertRegex(error, "all.reduce.*broadcast|broadcast.*all.reduce")

    def test_types_that_nobody_reduces(self):
        def body(rank):
            for x in torch.ones(3, dtype=torch.int16), torch.ones(3, dtype=torch.uint16):
                assert "elements of" in error_of(dist.all_reduce, x)
            complex_numbers = torch.ones(3, dtype=torch.complex64)
            assert "no order" in error_of(dist.group.WORLD.allreduce, [complex_numbers], dist.ReduceOp.MAX)
            x = torch.full((3,), rank, dtype=torch.int16)  # what is only moved may have any type
            dist.broadcast(x, 1)
            return x.tolist()

        self.assertEqual(on_ranks(2, body), [[1, 1, 1]] * 2)

    def test_truth_values_have_no_average(self):
        def body(rank):
            x = torch.tensor([rank == 0, True])
            assert "TypeError" in error_of(dist.all_reduce, x, op=dist.ReduceOp.AVG)
            dist.all_reduce(x)
            return x.tolist()

        self.assertEqual(on_ranks(2, body), [[True, True]] * 2)

    def test_types_that_differ_are_named(self):
        def body(rank):
            group, ones, doubles = dist.group.WORLD, torch.ones(4), torch.ones(8, dtype=torch.float64)
            lists = [[torch.ones(4, dtype=torch.float64)] for _ in range(2)]
            scattered = [[torch.ones(4, dtype=torch.float64) for _ in range(2)]] if rank == 0 else []
            calls = [
                (group.allgather_coalesced, lists, [ones]),
                (group.allgather_into_tensor_coalesced, [doubles], [ones]),
                (group.reduce_scatter_tensor_coalesced, [ones], [doubles]),
                (group.alltoall_base, torch.ones(8), doubles, [], []),
            ]
            for call, *arguments in calls:
                assert "into" in error_of(call, *arguments), call
            if rank == 0:
                assert "into" in error_of(group.scatter, [torch.ones(4)], scattered)
            dist.all_reduce(ones)
            return ones.tolist()

        self.assertEqual(on_ranks(2, body), [[2.0] * 4] * 2)

    @unittest.skipUnless(hasattr(dist.distributed_c10d, "FlightRecorderHook"), "PyTorch of before 2.15")
    def test_the_flight_recorder_tells_what_has_completed(self):
        def states():
            dump = torch._C._distributed_c10d._dump_fr_trace_json(backend="sennit")
            return [(entry["profiling_name"], entry["state"]) for entry in json.loads(dump)["entries"]]

        def body(rank):
            dist.all_reduce(torch.ones(4))
            kept = dist.all_reduce(torch.ones(4), async_op=True)  # nobody waits for it before it is looked for
            hangs = dist.irecv(torch.zeros(1), 1 - rank, tag=1)
            dist.barrier()
            deadline = time.monotonic() + 30
            while (seen := states())[1][1] != "completed" and time.monotonic() < deadline:
                time.sleep(0.1)
            dist.barrier()
            kept.wait()
            dist.send(torch.ones(1), 1 - rank, tag=1)
            hangs.wait()
            return [state for _, state in seen], {state for _, state in states()}

        for seen, last in on_ranks(2, body):
            self.assertEqual(seen[:3], ["completed", "completed", "scheduled"])
            self.assertEqual(last, {"completed"})

    def test_inference_mode(self):
        def body(rank):
            with torch.inference_mode():
                lists = [[torch.empty(4) for _ in range(2)] for _ in range(3)]
                works = [dist.all_gather(outputs, torch.full((4,), rank + 1.0), async_op=True) for outputs in lists]
                works[0].get_future().wait()
            works[1].wait()
            works[1] = works[2] = None  # nobody waits for it
            dist.barrier()
            deadline = time.monotonic() + 5
            while lists[2][1][0] != 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            return [[output[3].item() for output in outputs] for outputs in lists]

        self.assertEqual(on_ranks(2, body), [[[1.0, 2.0]] * 3] * 2)

    def test_a_job_after_another_in_one_store(self):
        def body(rank):
            store = dist.distributed_c10d._get_default_store()
            sums = []
            for _ in range(3):
                dist.monitored_barrier()
                x = torch.ones(2)
                dist.all_reduce(x, group=dist.new_group([0, 1, 2]))
                sums.append(x[0].item())
                dist.destroy_process_group()
                dist.init_process_group("sennit", store=store, rank=rank, world_size=3)
            return sums

        self.assertEqual(on_ranks(3, body), [[3.0] * 3] * 3)

    def test_a_group_tells_its_error(self):
        def body(rank):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            assert backend.get_error() == ErrorType.SUCCESS
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while error_of(dist.barrier) == "none":
                pass
            return backend.get_error() == ErrorType.REMOTE_ERROR

        self.assertEqual(on_ranks(2, body, killed=(1,)), [True, None])


class Collectives(unittest.TestCase):
    def test_detail_checks_collectives_alone(self):
        def body(rank):
            if rank < 2:
                x = torch.ones(1)
                dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
            x = torch.ones(2)
            dist.all_reduce(x)
            sparse = torch.sparse_coo_tensor([[0, rank]], [1.0, 1.0], (4,))
            dist.all_reduce(sparse)
            dist.all_reduce(x)
            return x[0].item(), sparse.to_dense().tolist()

        self.assertEqual(on_ranks(3, body, detail=True), [(9.0, [4.0, 1.0, 1.0, 0.0])] * 3)

    def test_detail_names_calls_that_differ(self):
        def body(rank):
            return error_of(dist.all_reduce, torch.ones(3 + rank))

        for error in on_ranks(2, body, detail=True):
            self.assertRegex(error, "Detected mismatch")

    def test_sparse_tensors_that_differ(self):
        def body(rank):
            def sparse(size, dtype=torch.float32):
                return torch.sparse_coo_tensor([[0]], torch.ones(1, dtype=dtype), (size,))

            square = torch.sparse_coo_tensor([[0], [0]], torch.ones(1), (2, 2))
            rows = torch.sparse_coo_tensor([[0]], torch.ones(1, 2), (1, 2))
            single = torch.ones(1, 2).to_sparse()
            all_ours = [
                (sparse(4), sparse(5)), (sparse(4), sparse(4, torch.int32)), (rows, single), (sparse(4), square)
            ]
            for ours in all_ours:
                assert "differ in shape, type" in error_of(dist.all_reduce, ours[rank]), ours[rank]
            dist.all_reduce(x := sparse(4))  # and the group is none the worse for it
            return x.to_dense().tolist()

        self.assertEqual(on_ranks(2, body), [[2.0, 0.0, 0.0, 0.0]] * 2)

    def test_sums_of_products(self):
        def body(rank):
            if not hasattr(dist, "_make_nccl_premul_sum"):
                return [1.5, 1.5]
            sums = []
            for factor in [0.5, torch.tensor([0.5])]:
                x = torch.full((4,), rank + 1.0)
                dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
                sums.append(x[0].item())
            return sums

        self.assertEqual(on_ranks(2, body), [[1.5, 1.5]] * 2)

    @unittest.skipUnless(hasattr(dist, "_make_nccl_premul_sum"), "PyTorch of before 2.0")
    def test_factors_that_elements_cannot_have(self):
        def body(rank):
            product = dist._make_nccl_premul_sum
            whole = torch.full((4,), rank + 1)
            for factor in 0.5, float("inf"), torch.tensor([0.5]):
                assert "not whole" in error_of(dist.all_reduce, whole, product(factor))
            assert "complex" in error_of(dist.all_reduce, torch.ones(4), product(torch.tensor([1j])))
            dist.all_reduce(whole, product(2.0))
            dist.all_reduce(whole, product(torch.tensor([2.0])))
            return whole[0].item()

        self.assertEqual(on_ranks(2, body), [24, 24])

    def test_parts_that_are_negative_are_refused(self):
        def body(rank):
            rows, x = [-1, 3], torch.ones(2, 2)
            return error_of(dist.all_to_all_single, torch.zeros(2, 2), x, rows, rows)

        for error in on_ranks(2, body):
            self.assertRegex(error, r"parts of \[-1, 3\] rows; they must be 2, none negative")

    def test_functional_collectives(self):
        def body(rank):
            group = dist.group.WORLD
            x = torch.full((4,), rank + 1.0)
            assert functional.all_reduce(x, "sum", group).tolist() == [3.0] * 4
            assert functional.all_gather_tensor(x, 0, group).tolist() == [1.0] * 4 + [2.0] * 4
            assert functional.reduce_scatter_tensor(x, "sum", 0, group).tolist() == [3.0] * 2
            assert functional.broadcast(x, 1, group).tolist() == [2.0] * 4
            parts = functional.all_to_all_single(x, [2, 2], [2, 2], group)
            assert parts.tolist() == [1.0, 1.0, 2.0, 2.0]
            both = functional.all_reduce_coalesced([x, 2 * x], "max", group)
            assert [one[0].item() for one in both] == [2.0, 4.0]
            both = functional.all_gather_into_tensor_coalesced([x, x[:1]], group)
            assert [one.tolist() for one in both] == [[1.0] * 4 + [2.0] * 4, [1.0, 2.0]]
            both = functional.reduce_scatter_tensor_coalesced([x, x[:2]], "avg", [0, 0], group)
            assert [one.tolist() for one in both] == [[1.5] * 2, [1.5]]

        on_ranks(2, body)

    def test_several_threads_with_several_groups(self):
        def body(rank):
            groups = [dist.new_group([0, 1, 2]) for _ in range(4)]
            sums = [0.0] * 4

            def run(i):
                for step in range(100):
                    x = torch.full((i * 100 + 1,), float(rank + step))
                    dist.all_reduce(x, group=groups[i])
                    sums[i] += x[-1].item()

            threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sums

        self.assertEqual(on_ranks(3, body), [[3.0 * (100 + 99 * 50)] * 4] * 3)

    def test_tensors_that_require_a_gradient(self):
        def body(rank):
            plain = torch.full((2, 2), rank + 1.0)
            for x in plain.clone().requires_grad_(), plain.clone().t().requires_grad_():
                dist.all_reduce(x)
                assert x.detach().sum() == 12 and x.requires_grad and x.is_leaf
            x = plain.clone().requires_grad_()
            parts = [torch.zeros(2, 2, requires_grad=True) for _ in range(2)]
            dist.all_gather(parts, x)
            assert [part.detach().sum().item() for part in parts] == [4.0, 8.0]
            assert all(part.is_leaf for part in parts)
            dist.reduce_scatter(x, parts)
            dist.all_to_all(parts, list(parts))
            dist.scatter(x, parts if rank == 0 else None)
            dist.gather(x, parts if rank == 0 else None)
            dist.broadcast(parts[0], 1)
            sparse = torch.sparse_coo_tensor([[0]], [1.0], (4,)).requires_grad_()
            dist.all_reduce(sparse)
            assert sparse.detach().to_dense()[0] == 2
            assert x.is_leaf and all(part.is_leaf for part in parts)

        on_ranks(2, body)

    def test_tensors_that_are_not_contiguous(self):
        def body(rank):
            whole = torch.zeros(4, 6)
            part = whole[:, ::2]
            part.fill_(rank + 1)
            dist.all_reduce(part)
            assert whole.sum() == 36 and whole[0, 1] == 0
            dist.broadcast(whole.t(), 1)
            dist.send(part, 1 - rank) if rank == 0 else dist.recv(part, 0)
            out = torch.zeros(3, 8).t()
            dist.all_gather_into_tensor(out, part)
            group, rows, odd = dist.group.WORLD, torch.zeros(3, 8).t(), torch.zeros(3, 6)[:, ::2]
            group.allgather_into_tensor_coalesced([rows], [part]).wait()
            assert torch.equal(rows, out)
            gather = group.allgather_into_tensor_coalesced
            assert "not contiguous" in error_of(gather, [odd[:, :2]], [torch.ones(3)])
            return out.sum().item()

        self.assertEqual(on_ranks(2, body), [72.0, 72.0])

    def test_a_backend_for_each_device(self):
        def body(rank):
            x = torch.ones(1)
            dist.all_reduce(x)
            assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "sennit"
            return x.item()

        other = "nccl" if torch.cuda.is_available() else "gloo"
        self.assertEqual(on_ranks(2, body, backend=f"cpu:sennit,cuda:{other}"), [2.0, 2.0])
        dist.distributed_c10d.BackendConfig("cpu:sennit,cuda:nccl")

    def test_monitored_barriers(self):
        def body(rank):
            if rank == 2:
                time.sleep(1)
            # Only rank 0's time-out counts.
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=20 if rank == 0 else 0.2))
            store = dist.distributed_c10d._get_default_store()
            counts = []
            for _ in range(5):
                dist.monitored_barrier()
                dist.barrier()
                counts.append(store.num_keys())
                dist.barrier()
            assert counts[0] == counts[-1], counts
            if rank == 1:
                return "late"
            limit = datetime.timedelta(seconds=0.5)
            return error_of(dist.monitored_barrier, timeout=limit, wait_all_ranks=True)

        got = on_ranks(3, body, timeout=5)
        self.assertRegex(got[0], "DistBackendError: .*Rank 1 failed to pass")
        self.assertRegex(got[2], "Rank 2 successfully reached .* errors .* from rank 0: Rank 1 failed to pass")

    def test_groups_that_are_split_off(self):
        def body(rank):
            if not hasattr(dist, "split_group"):
                return 4.0
            group = dist.split_group(split_ranks=[[2, 0], [1]], timeout=datetime.timedelta(seconds=7))
            x = torch.full((1,), float(rank))
            dist.all_reduce(x, group=group)
            if rank != 1:
                dist.broadcast(x, group=group, group_src=0)
                assert dist.get_group_rank(group, 2) == 0
            assert group._get_backend(torch.device("cpu")).options._timeout == datetime.timedelta(seconds=7)
            return x.item()

        self.assertEqual(on_ranks(3, body), [2.0, 1.0, 2.0])

    def test_a_work_knows_its_duration(self):
        def body(rank):
            dist.group.WORLD._enable_collectives_timing()
            dist.barrier()
            if rank == 1:
                time.sleep(0.2)
            work = dist.barrier(async_op=True)
            work.wait()
            return work._get_duration()

        first, second = on_ranks(2, body)
        self.assertGreater(first, 150)
        self.assertLess(second, 150)

    def test_memory_that_is_used_again_is_registered_where_asked_for(self):
        def shared(address):
            """Whether the page at the address is of a file that other processes map too."""
            with open("/proc/self/maps") as maps:
                for line in maps:
                    area, access = line.split()[:2]
                    begin, end = (int(part, 16) for part in area.split("-"))
                    if begin <= address < end:
                        return access[3] == "s"
            return False

        def body(rank):
            sennit_torch.register_memory()
            count = 1 << 20
            middle = 2 * count  # in bytes
            seen = []
            for x in torch.full((count,), 1.0), torch.from_numpy(numpy.full(count, 1.0, "float32")):
                for expected in 2.0, 4.0, 8.0:
                    dist.all_reduce(x)
                    assert bool((x == expected).all())
                    seen.append(shared(x.data_ptr() + middle))
                child = os.fork()
                if child == 0:
                    x = None  # noqa: F841: it frees what is registered in its parent
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                dist.all_reduce(x)
                assert bool((x == 16.0).all())
            part = torch.zeros(2, count)[0]
            for _ in range(3):
                dist.all_reduce(part)  # half of a storage
            seen.append(shared(part.data_ptr() + middle))
            address = part.data_ptr() + middle
            part = None
            seen.append(shared(address))
            left = torch.zeros(count)
            for _ in range(3):
                dist.all_reduce(left)
            dist.destroy_process_group()
            left.fill_(1)  # after the group
            return seen

        expected = [False, True, True] * 2 + [True, False]
        self.assertEqual(on_ranks(2, body), [expected] * 2)


if __name__ == "__main__":
    unittest.main()
