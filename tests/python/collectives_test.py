"""Every collective of `import sennit`, of all types, blocking and nonblocking, against numpy."""

import random
import re
import threading
import unittest

import numpy
import sennit
from ranks import on_threads

TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
OPS = {
    "SUM": lambda a: a.sum(0),
    "PROD": lambda a: a.prod(0),
    "MIN": lambda a: a.min(0),
    "MAX": lambda a: a.max(0),
}
SIZE, COUNT = 4, 6


def of(rank, dtype, count=COUNT):
    return (numpy.arange(count) % 3 + rank % 2).astype(dtype)


class Collectives(unittest.TestCase):
    def both(self, body, dtypes=TYPES):
        """body(comm, call, dtype) with the blocking methods, then with their nonblocking twins."""
        for dtype in dtypes:
            for blocking in True, False:

                def run(comm, blocking=blocking, dtype=dtype):
                    def call(name, *args, **named):
                        if blocking:
                            self.assertIsNone(getattr(comm, name)(*args, **named))
                        else:
                            self.assertTrue(getattr(comm, name + "_start")(*args, **named).wait())

                    body(comm, call, dtype)

                on_threads(SIZE, run)

    def same(self, got, expected):
        numpy.testing.assert_array_equal(got, expected)

    def test_all_reduce_of_all_types_and_ops(self):
        def body(comm, call, dtype):
            everything = numpy.stack([of(r, dtype) for r in range(SIZE)])
            for name, formula in OPS.items():
                out = numpy.zeros(COUNT, dtype)
                call("all_reduce", of(comm.rank, dtype), out, getattr(sennit, name))
                self.same(out, formula(everything).astype(dtype))
            in_place = of(comm.rank, dtype)
            call("all_reduce", in_place)
            self.same(in_place, everything.sum(0).astype(dtype))

        self.both(body)

    def test_avg_and_premul_sum(self):
        def body(comm, call, dtype):
            x = of(comm.rank, dtype)
            call("all_reduce", x, op=sennit.AVG)
            self.same(x, numpy.stack([of(r, dtype) for r in range(SIZE)]).mean(0).astype(dtype))
            y = of(comm.rank, dtype)
            call("all_reduce", y, op=comm.premul_sum(2, dtype))
            self.same(y, sum(2 * of(r, dtype) for r in range(SIZE)))

        self.both(body, ["float32", "float64", "float16"])

    def test_a_premul_sum_is_of_one_communicator(self):
        def body(comm):
            twin = comm.dup()
            own, other = comm.premul_sum(5, "float64"), twin.premul_sum(2, "float64")  # the first of each
            x, y = numpy.ones(1), numpy.ones(1)
            for call in comm.all_reduce, comm.reduce, comm.reduce_scatter:
                with self.assertRaisesRegex(sennit.InvalidArgument, "premul_sum of float64 of another communicator"):
                    call(x, y, other)
            comm.all_reduce(x, op=own)
            self.same(x, [5])

        on_threads(1, body)

    def test_types_of_premul_sum(self):
        def body(comm):
            for dtype in "float32", numpy.float32, numpy.dtype("float32"):
                x = numpy.ones(2, "float32")
                comm.all_reduce(x, op=comm.premul_sum(3, dtype))
                self.same(x, [3, 3])
            for dtype, name in (numpy.int16, "int16"), (float, "float"), ("half", "half"):
                with self.assertRaisesRegex(sennit.InvalidArgument, f"no type '{name}'; give"):
                    comm.premul_sum(1, dtype)

        on_threads(1, body)

    def test_scalars_that_are_none_of_the_type(self):
        def body(comm):
            for dtype, scalars in {
                "float64": ("x", None, [1.0]),
                "float32": ("x", b"x"),
                "float16": ("x", 1e6),
                "bfloat16": ("x",),
                "int8": (300, 2.5, "x"),
                "uint64": (-1, 1 << 64),
            }.items():
                for scalar in scalars:
                    text = f"scalar is {scalar!r}; give a number of the type {dtype}"
                    with self.assertRaisesRegex(sennit.InvalidArgument, re.escape(text)):
                        comm.premul_sum(scalar, dtype)

        on_threads(1, body)

    def test_reduce_and_broadcast(self):
        def body(comm, call, dtype):
            for root in range(SIZE):
                x = of(comm.rank, dtype)
                out = numpy.zeros(COUNT, dtype) if comm.rank == root else None
                call("reduce", x, out, sennit.MAX, root)
                if out is not None:
                    self.same(out, of(1, dtype))
                call("broadcast", x, root)
                self.same(x, of(root, dtype))

        self.both(body, ["int32", "float64"])

    def test_gathers_and_scatters(self):
        def body(comm, call, dtype):
            everything = numpy.concatenate([of(r, dtype) + r for r in range(SIZE)])
            mine = of(comm.rank, dtype) + numpy.asarray(comm.rank, dtype)
            out = numpy.zeros(SIZE * COUNT, dtype)
            call("all_gather", mine, out)
            self.same(out, everything)
            root = comm.rank == 2
            out = numpy.zeros(SIZE * COUNT, dtype) if root else None
            call("gather", mine, out, 2)
            if root:
                self.same(out, everything)
            got = numpy.zeros(COUNT, dtype)
            call("scatter", everything if root else None, got, root=2)
            self.same(got, mine)
            call("reduce_scatter", everything, got)
            self.same(got, (SIZE * mine.astype(dtype)).astype(dtype))

        self.both(body, ["uint8", "float32"])

    def test_unequal_blocks(self):
        counts = [3, 0, 5, 1]
        places = [10, 0, 2, 0]

        def body(comm, call, dtype):
            rank = comm.rank
            mine = numpy.full(counts[rank], rank + 1, dtype)
            packed = numpy.repeat(numpy.arange(SIZE) + 1, counts).astype(dtype)
            out = numpy.zeros(sum(counts), dtype)
            call("all_gather", mine, out, counts)
            self.same(out, packed)
            spread = numpy.zeros(13, dtype)
            call("all_gather", mine, spread, counts, places)
            for r in range(SIZE):
                self.same(spread[places[r] : places[r] + counts[r]], numpy.full(counts[r], r + 1))
            got = numpy.zeros(counts[rank], dtype)
            call("reduce_scatter", packed, got, counts=counts)
            self.same(got, SIZE * mine)
            call("scatter", packed if rank == 0 else None, got, 0, counts)
            self.same(got, mine)
            out[:] = 0
            call("gather", mine, out if rank == 0 else None, 0, counts)
            if rank == 0:
                self.same(out, packed)

        self.both(body, ["int64"])

    def test_a_list_that_does_not_name_all_ranks(self):
        def body(comm):
            one, everything = numpy.ones(1), numpy.ones(2)
            calls = {
                "gather": lambda *lists: comm.gather(one, everything, 0, *lists),
                "scatter": lambda *lists: comm.scatter(everything, one, 0, *lists),
                "all_gather": lambda *lists: comm.all_gather(one, everything, *lists),
                "reduce_scatter": lambda counts: comm.reduce_scatter(everything, one, counts=counts),
                "all_to_all": lambda counts: comm.all_to_all(everything, everything, counts, [1, 1]),
            }
            for name, call in calls.items():
                with self.assertRaisesRegex(sennit.InvalidArgument, f"{name}: counts has 1 entries"):
                    call([1])
            for name in "gather", "scatter", "all_gather":
                with self.assertRaisesRegex(sennit.InvalidArgument, f"{name}: displacements has 1 entries"):
                    calls[name]([1, 1], [0])
            for places in ([0], None), (None, [0]):
                with self.assertRaisesRegex(sennit.InvalidArgument, "all_to_all: displacements has 1 entries"):
                    comm.all_to_all(everything, everything, [1, 1], [1, 1], *places)
            comm.barrier()  # and is none the worse for it

        on_threads(2, body)

    def test_all_to_all(self):
        def body(comm, call, dtype):
            rank = comm.rank
            out = numpy.zeros(SIZE * 2, dtype)
            call("all_to_all", numpy.repeat(numpy.arange(SIZE) * 10 + rank, 2).astype(dtype), out)
            self.same(out, numpy.repeat(rank * 10 + numpy.arange(SIZE), 2))
            # Rank i sends j + 1 elements to rank j.
            send = numpy.repeat(numpy.arange(SIZE), numpy.arange(SIZE) + 1).astype(dtype)
            out = numpy.zeros(SIZE * (rank + 1), dtype)
            call("all_to_all", send, out, [j + 1 for j in range(SIZE)], [rank + 1] * SIZE)
            self.same(out, numpy.full(SIZE * (rank + 1), rank))

        self.both(body, ["int32"])

    def test_messages_and_barrier(self):
        def body(comm, call, dtype):
            call("barrier")
            after, before = (comm.rank + 1) % SIZE, (comm.rank - 1) % SIZE
            got = numpy.zeros(COUNT, dtype)
            work = comm.recv_start(got, before)
            call("send", of(comm.rank, dtype), after)
            work.wait()
            self.same(got, of(before, dtype))

        self.both(body, ["float32"])

    def test_bitwise_operations(self):
        def body(comm, call, dtype):
            everything = numpy.stack([of(r, dtype) * 5 for r in range(SIZE)])
            for name, formula in ("BAND", numpy.bitwise_and), ("BOR", numpy.bitwise_or), ("BXOR", numpy.bitwise_xor):
                x = of(comm.rank, dtype) * 5
                call("all_reduce", x, op=getattr(sennit, name))
                self.same(x, formula.reduce(everything))

        self.both(body, [dtype for dtype in TYPES if "int" in dtype])

    def test_bitwise_operations_are_of_integers(self):
        def body(comm):
            with self.assertRaisesRegex(sennit.InvalidArgument, "band of float32: bitwise"):
                comm.all_reduce(numpy.ones(2, "float32"), op=sennit.BAND)

        on_threads(2, body)

    def test_messages_with_tags_from_any_source(self):
        def body(comm):
            if comm.rank > 0:
                comm.send(numpy.full(2, float(comm.rank)), 0, tag=comm.rank)
                comm.send(numpy.full(2, 10.0 + comm.rank), 0)
                return
            for peer in reversed(range(1, SIZE)):
                got = numpy.zeros(2)
                comm.recv(got, peer, tag=peer)
                self.same(got, numpy.full(2, float(peer)))
            sources = set()
            for _ in range(1, SIZE):
                got = numpy.zeros(2)
                work = comm.recv_start(got, sennit.ANY_SOURCE)
                self.assertIsNone(work.source if not work.wait() else None)
                self.same(got, numpy.full(2, 10.0 + work.source))
                sources.add(work.source)
            self.assertEqual(sources, set(range(1, SIZE)))

        on_threads(SIZE, body)

    def test_a_group_exchanges_what_would_wait_for_ever_one_by_one(self):
        def body(comm):
            other = comm.rank ^ 1
            got = numpy.zeros(100_000)
            with sennit.group():
                self.assertIsNone(comm.send(numpy.full(100_000, float(comm.rank)), other))
                comm.recv(got, other)
                work = comm.all_reduce_start(numpy.ones(3))
                with self.assertRaisesRegex(sennit.InvalidArgument, "group"):
                    work.test()
            self.same(got, numpy.full(100_000, float(other)))
            self.assertTrue(work.test())

        on_threads(2, body)

    def test_a_group_ends_in_the_thread_that_began_it(self):
        def body(comm):
            twin, x, refused = comm.dup(), numpy.ones(1), []

            def end():
                try:
                    group.__exit__(None, None, None)
                except sennit.InvalidArgument as error:
                    refused.append(str(error))
                with sennit.group():  # its own are none the worse for it
                    twin.all_reduce(x, op=twin.premul_sum(2, "float64"))

            group = sennit.group()
            group.__enter__()
            thread = threading.Thread(target=end)
            thread.start()
            thread.join()
            self.assertIn("this thread has none open", refused[0])
            self.same(x, [2])
            comm.all_reduce(x, op=comm.premul_sum(3, "float64"))
            group.__exit__(None, None, None)
            self.same(x, [6])

        on_threads(1, body)

    def test_a_group_whose_body_raises_makes_nothing(self):
        def body(comm):
            with self.assertRaises(KeyError):
                with sennit.group():
                    comm.send(numpy.ones(4), comm.rank ^ 1)
                    raise KeyError
            comm.barrier()

        on_threads(2, body)

    def test_split_and_dup(self):
        def body(comm):
            half = comm.split(comm.rank % 2, key=-comm.rank)
            self.assertEqual((half.size, half.rank), (2, 1 if comm.rank < 2 else 0))
            x = numpy.array([comm.rank])
            half.all_reduce(x)
            self.assertEqual(x[0], 2 if comm.rank % 2 == 0 else 4)
            self.assertIsNone(comm.split(None))
            twin = comm.dup()
            self.assertEqual((twin.rank, twin.size), (comm.rank, comm.size))

        on_threads(SIZE, body)

    def test_groups_made_by_their_members(self):
        def body(comm):
            if comm.rank != 1:  # which takes no part
                group = comm.create_group([3, 0, 2])
                self.assertEqual((group.size, group.rank), (3, [1, None, 2, 0][comm.rank]))
                x = numpy.array([comm.rank])
                group.all_reduce(x)
                self.assertEqual(x[0], 5)
                group.barrier()
            comm.barrier()
            alone = comm.create_group((comm.rank,), tag=7)
            self.assertEqual((alone.size, alone.rank), (1, 0))
            made = [None, None]

            def make(tag):
                made[tag] = comm.create_group(range(SIZE), tag)

            threads = [threading.Thread(target=make, args=(tag,)) for tag in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for group in made:
                self.assertEqual((group.size, group.rank), (SIZE, comm.rank))
                group.barrier()
            other = (comm.rank + 1) % SIZE
            for ranks, tag in ([other], 0), ([comm.rank, SIZE], 0), ([comm.rank] * 2, 0), ([comm.rank], -1), ([], 0):
                with self.assertRaises(sennit.InvalidArgument):
                    comm.create_group(ranks, tag)
            comm.barrier()  # and is none the worse for it

        on_threads(SIZE, body)

    def test_random_calls_one_after_the_other_without_waiting(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)

        def body(comm):
            draw = random.Random(seed)
            pending = []
            for _ in range(200):
                x = numpy.full(draw.choice([1, 3, 1000, 70_000]), comm.rank + 1.0, "float32")
                pending.append((x, comm.all_reduce_start(x)))
                if draw.random() < 0.1:
                    draw.shuffle(pending)
                    for done, work in pending:
                        work.wait()
                        self.assertTrue((done == 10).all())
                    pending = []
            for _, work in pending:
                work.wait()

        on_threads(SIZE, body)


if __name__ == "__main__":
    unittest.main()
