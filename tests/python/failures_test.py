"""What `import sennit` says when things go wrong, with real processes: nothing hangs."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import numpy
import sennit
from ranks import Processes, on_threads


def interrupt_soon():
    """As by Control-C, also where this was started in the background of a shell, which has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


def until_error(comm):
    try:
        while True:
            comm.all_reduce(numpy.ones(1000))
    except sennit.Error as error:
        return type(error).__name__, error.failed_ranks


class Failures(unittest.TestCase):
    def test_a_killed_rank_is_named(self):
        def body(comm):
            comm.barrier()
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return until_error(comm)

        got = Processes(3, body).results()
        self.assertEqual(got, [("PeerFailed", [1]), None, ("PeerFailed", [1])])

    def test_a_rank_that_is_killed_within_a_group_is_named(self):
        def body(comm):
            one = numpy.ones(1)
            alone = comm.create_group([comm.rank])  # which does not fail
            if comm.rank == 1:
                comm.recv(one, 0)
                comm.recv(one, 2)  # so that both groups have begun
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                with sennit.group():
                    alone.barrier()
                    comm.send(one, 1)
                    comm.recv(numpy.ones(1), 1)
            except sennit.PeerFailed as error:
                return error.failed_ranks, "rank 1" in str(error)

        self.assertEqual(Processes(3, body).results(), [([1], True), None, ([1], True)])

    def test_every_rank_is_told_who_is_behind(self):
        told = [threading.Event() for _ in range(3)]
        verdicts = []

        def body(comm):
            def hear(verdict):
                if verdict["verdict"] == "hang" and not verdict["withdrawn"]:
                    verdicts.append(verdict)
                    told[comm.rank].set()
                    raise ValueError("it is printed, and nothing else comes of it")

            comm.on_verdict(hear)
            comm.barrier()
            if comm.rank == 1:
                for event in told:
                    self.assertTrue(event.wait(30))
            comm.barrier()
            comm.on_verdict(None)

        with unittest.mock.patch("sys.unraisablehook"):
            on_threads(3, body)
        for verdict in verdicts:
            self.assertEqual(verdict["blamed_ranks"], [1], verdict)
            self.assertEqual(verdict["waiting_ranks"], [0, 2], verdict)

    def test_control_c_ends_a_call_that_waits(self):
        def body(comm, call):
            comm.barrier()
            if comm.rank == 1:
                return until_error_in(comm)
            try:
                interrupt_soon()
                call(comm)
            except KeyboardInterrupt:
                return "interrupted"

        def until_error_in(comm):
            for _ in range(600):
                time.sleep(0.1)
                try:
                    comm.raise_failure()
                except sennit.Aborted:
                    return "aborted"

        def receive(comm):
            comm.recv(numpy.ones(4), 1)

        for call in (receive, lambda comm: comm.split(0), sennit.Communicator.dup, sennit.Communicator.finalize):
            ranks = Processes(2, functools.partial(body, call=call))
            self.assertEqual(ranks.results(), ["interrupted", "aborted"])

    def test_who_waits_for_a_message_is_told_that_its_sender_has_left(self):
        def body(comm):
            comm.barrier()
            if comm.rank == 0:
                with self.assertRaisesRegex(sennit.PeerFailed, "rank 1 has left the job"):
                    comm.recv(numpy.ones(1), 1)
            comm.destroy()

        on_threads(2, body)

    def test_what_one_rank_was_refused_the_others_are_told(self):
        def body(comm, call, off):
            if comm.rank == 0:
                with self.assertRaises(sennit.InvalidArgument):
                    off(comm)
                self.assertTrue(told.wait(60))
            else:
                with self.assertRaisesRegex(sennit.Mismatch, "rank 0 was refused it, "):
                    call(comm)
                told.set()
            comm.destroy()

        columns = numpy.ones((2, 2))
        for call, off in (
            (lambda comm: comm.all_reduce(columns[0]), lambda comm: comm.all_reduce(columns[:, 0])),
            (lambda comm: comm.split(0), lambda comm: comm.split(-1)),
        ):
            told = threading.Event()
            on_threads(2, functools.partial(body, call=call, off=off))

    def test_control_c_ends_a_start(self):
        # A thread that was joined is in the second count for a moment longer, so fewer are well too.
        others = threading.active_count(), len(os.listdir("/proc/self/task"))
        unique_id = sennit.unique_id()
        for rank in (1, 0):  # rank 1 waits for rank 0, which waits for rank 1
            with self.assertRaises(KeyboardInterrupt):
                interrupt_soon()
                sennit.init_rank(unique_id, rank, 2)
        for _ in range(600):
            if threading.active_count() <= others[0] and len(os.listdir("/proc/self/task")) <= others[1]:
                break
            time.sleep(0.1)
        else:
            self.fail("a thread of the start is left")

    def test_calls_that_differ(self):
        def body(comm):
            try:
                comm.all_reduce(numpy.ones(3 + comm.rank))
            except sennit.Mismatch as error:
                comm.destroy()  # which leaves nothing to be finalized
                return str(error)

        for text in on_threads(2, body):
            self.assertIn("count", text)

    def test_an_abort_out_of_another_thread(self):
        def body(comm):
            if comm.rank == 0:
                threading.Timer(0.2, comm.abort).start()
                with self.assertRaises(sennit.Aborted):
                    comm.recv(numpy.ones(1), 1)
            else:
                with self.assertRaises(sennit.Aborted):
                    comm.recv(numpy.ones(1), 0)
            with self.assertRaises(sennit.Aborted):
                comm.barrier()
            comm.destroy()

        on_threads(2, body)

    def test_waits_end_on_time(self):
        def body(comm):
            if comm.rank == 1:
                time.sleep(0.3)
                comm.barrier()
                return
            work = comm.barrier_start()
            self.assertFalse(work.test())
            self.assertFalse(work.wait(0.05))
            with self.assertRaises(sennit.InvalidArgument):
                work.wait(-1)
            self.assertTrue(work.wait(20))
            self.assertTrue(work.wait() and work.test())

        on_threads(2, body)

    def test_two_threads_wait_for_one_work(self):
        def body(comm):
            for round in range(50):
                x = numpy.ones(1)
                results = []
                work = comm.recv_start(x, 1, round) if comm.rank == 0 else None
                if work:
                    calls = [work.wait, work.wait, lambda: work.wait(30), work.test]
                    threads = [threading.Thread(target=lambda call=call: results.append(call())) for call in calls]
                    for thread in threads:
                        thread.start()
                comm.barrier()
                if work is None:
                    comm.send(x, 0, round)
                    continue
                for thread in threads:
                    thread.join()
                self.assertGreaterEqual(results.count(True), 3)
                self.assertTrue(work.test())
                self.assertEqual(work.source, 1)

        on_threads(2, body)

    def test_half_a_message_to_oneself_is_an_error(self):
        (comm,) = sennit.init_local(1)
        one, two = numpy.ones(1), numpy.zeros(1)
        with self.assertRaisesRegex(sennit.InvalidArgument, "send to oneself: no receive waits"):
            comm.send(one, 0)
        with self.assertRaisesRegex(sennit.InvalidArgument, "recv from oneself: nothing was sent"):
            comm.recv(two, 0)
        started = comm.recv_start(two, 0)
        self.assertFalse(started.wait(0))  # not an error yet
        with self.assertRaisesRegex(sennit.InvalidArgument, "recv from oneself: nothing was sent"):
            started.wait()
        started = comm.recv_start(two, 0)
        comm.send(one, 0)
        self.assertTrue(started.wait())
        self.assertEqual(two[0], 1)
        comm.destroy()

    def test_two_threads_wait_for_a_work_that_fails(self):
        started = threading.Barrier(2)

        def body(comm):
            work = comm.recv_start(numpy.ones(1), 1 - comm.rank)
            started.wait()  # before either aborts
            errors = []

            def wait():
                try:
                    work.wait()
                except sennit.Error as error:
                    errors.append(type(error))

            threads = [threading.Thread(target=wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            comm.abort()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [sennit.Aborted] * 3)
            comm.destroy()

        on_threads(2, body)

    def test_a_wait_for_another_thread_counts(self):
        timeout = 0.09  # each wait is one try for the lock

        def waited(work):
            first = threading.Thread(target=work.wait, args=(timeout,))
            first.start()
            time.sleep(timeout / 10)  # it has the lock by then
            began = time.monotonic()
            self.assertFalse(work.wait(timeout))
            took = time.monotonic() - began
            first.join()
            return took

        def body(comm):
            work = comm.recv_start(numpy.ones(1), 1) if comm.rank == 0 else None
            if work:  # the best of several: others use the machine, too
                self.assertTrue(any(waited(work) < 1.5 * timeout for _ in range(10)))
            comm.barrier()
            if work:
                work.wait()
            else:
                comm.send(numpy.ones(1), 0)

        on_threads(2, body)

    def ends_well(self, code, within):
        """A program whose last line prints 'ends', and the seconds that it takes after that."""
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as ends:
            try:
                self.assertEqual(ends.stdout.readline(), "ends\n")
                began = time.monotonic()
                self.assertEqual(ends.wait(30), 0)
            finally:
                ends.kill()
            self.assertLess(time.monotonic() - began, within)

    def test_an_exit_with_a_work_out(self):
        code = (
            "import numpy, sennit, sys\n"
            "comms = sennit.init_local(2)\n"
            "work = comms[0].recv_start(numpy.ones(1), 1)\n"
            "print('ends', flush=True)\n"
        )
        self.ends_well(code, 2)

    def test_an_exit_while_a_daemon_thread_waits(self):
        code = (
            "import numpy, sennit, threading, time\n"
            "comms = sennit.init_local(2)\n"
            "threading.Thread(target=comms[0].recv, args=(numpy.ones(1), 1), daemon=True).start()\n"
            "class Last:\n"  # when the interpreter is ending, the thread comes back from its call
            "    def __del__(self, send=comms[1].send, one=numpy.ones(1), sleep=time.sleep):\n"
            "        send(one, 0)\n"
            "        sleep(0.3)\n"
            "last = Last()\n"
            "print('ends', flush=True)\n"
        )
        self.ends_well(code, 2)

    def test_an_exit_right_behind_what_a_daemon_thread_waits_for(self):
        code = (
            "import numpy, sennit, sys, threading, time\n"
            "comms = sennit.init_local(2)\n"
            "n = 1 << 21\n"  # too much to have come before send_start() is back with Python's lock
            "threading.Thread(target=comms[0].recv, args=(numpy.ones(n), 1), daemon=True).start()\n"
            "time.sleep(0.2)\n"  # so that the thread waits in the library
            "print('ends', flush=True)\n"
            "sys.setswitchinterval(60)\n"
            "work = comms[1].send_start(numpy.ones(n), 0)\n"
            "behind = time.monotonic() + 0.3\n"
            "while time.monotonic() < behind: pass\n"  # the thread waits for the lock from here on
        )
        self.ends_well(code, 2)

    def test_a_call_that_is_waited_for_while_the_interpreter_ends(self):
        code = (
            "import numpy, os, sennit, threading, time\n"
            "comms = sennit.init_local(2)\n"
            "never = comms[1].recv_start(numpy.ones(1), 0)\n"
            "work = comms[0].recv_start(numpy.ones(1), 1)\n"
            "threading.Thread(target=work.wait, daemon=True).start()\n"
            "time.sleep(0.2)\n"
            "class Last:\n"
            "    def __del__(self, send=comms[1].send, one=numpy.ones(1), sleep=time.sleep, wait=work.wait,\n"
            "                never=never.wait, write=os.write):\n"
            "        assert not never(0.3)\n"  # longer than handlers of signals wait
            "        send(one, 0)\n"
            "        sleep(0.1)\n"  # the thread comes back, and stays
            "        wait()\n"
            "        write(1, b'ends\\n')\n"
            "last = Last()\n"
        )
        self.ends_well(code, 2)

    def test_an_exit_while_a_verdict_is_told(self):
        code = (
            "import sennit, threading, time\n"
            "comms = sennit.init_local(2)\n"
            "called = threading.Event()\n"
            "def slow(verdict):\n"
            "    called.set()\n"
            "    time.sleep(0.5)\n"
            "comms[0].on_verdict(slow)\n"
            "work = comms[0].barrier_start()\n"
            "while not called.is_set():\n"
            "    work.wait(0.1)\n"
            "print('ends', flush=True)\n"
        )
        self.ends_well(code, 4)

    def test_what_is_off(self):
        def body(comm):
            comm.destroy()
            comm.destroy()
            for call in comm.barrier, lambda: comm.rank, comm.abort, lambda: comm.all_reduce(bytearray(1)):
                with self.assertRaisesRegex(sennit.InvalidArgument, "destroyed"):
                    call()
            self.assertIn("destroyed", repr(comm))

        on_threads(1, body)
        with self.assertRaisesRegex(sennit.InvalidArgument, "3 bytes, not the 128"):
            sennit.init_rank(b"abc", 0, 2)
        with self.assertRaises(sennit.Error):
            sennit.init_local(0)
        with self.assertRaisesRegex(sennit.InvalidArgument, "concurrency 'all': expected siblings, alone"):
            sennit.init_local(2, concurrency="all")
        with self.assertRaises(sennit.Error):
            sennit.init(fabric="/nowhere")
        with self.assertRaises(ValueError):  # as Python's own
            sennit.init_rank(sennit.unique_id(), 5, 2)

    def test_an_id_of_an_address(self):
        os.environ["SENNIT_SECRET"] = "words of a test"
        try:
            self.assertEqual(len(sennit.unique_id("127.0.0.1:5000")), 128)
            with self.assertRaisesRegex(ValueError, "expected HOST:PORT"):
                sennit.unique_id("nowhere")
        finally:
            del os.environ["SENNIT_SECRET"]

    def test_a_failed_work_says_so_each_time(self):
        both_started = threading.Barrier(2)

        def body(comm):
            work = comm.recv_start(numpy.ones(1), 1 - comm.rank)
            both_started.wait()
            comm.abort()
            for _ in range(2):
                with self.assertRaises(sennit.Aborted):
                    work.wait()
            comm.destroy()

        on_threads(2, body)


if __name__ == "__main__":
    unittest.main()
