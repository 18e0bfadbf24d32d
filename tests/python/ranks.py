"""Ranks for the tests of `import sennit`: as threads, or as processes that may be killed."""

import contextlib
import multiprocessing
import threading
import traceback

import sennit


def on_threads(size, body):
    """body(comm) on `size` ranks, each a thread; returns what each returned, raises what one raised."""
    comms = sennit.init_local(size)
    results, errors = [None] * size, []

    def run(rank):
        try:
            with comms[rank] as comm:
                results[rank] = body(comm)
        except BaseException as error:  # noqa: BLE001: all of them are told to the test
            errors.append(error)
            with contextlib.suppress(sennit.Error):
                comms[rank].abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    if errors:
        raise errors[0]
    return results


def _process(body, unique_id, rank, size, pipe):
    try:
        comm = sennit.init_rank(unique_id, rank, size)
        pipe.send(body(comm))
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        pipe.send(error)


class Processes:
    """body(comm) on `size` ranks, each a process."""

    def __init__(self, size, body):
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(size)]
        unique_id_pipe = context.Pipe()
        self.pipes = [receiving for receiving, _ in pipes]
        self.all = []
        for rank in range(size):
            made = context.Process(target=self._start, args=(body, rank, size, pipes[rank][1], unique_id_pipe))
            made.start()
            self.all.append(made)
        unique_id = unique_id_pipe[0].recv()
        for _ in range(size - 1):
            unique_id_pipe[0].send(unique_id)

    @staticmethod
    def _start(body, rank, size, pipe, ids):
        # Rank 0 makes the id, because its process must be the one that listens.
        if rank == 0:
            unique_id = sennit.unique_id()
            ids[1].send(unique_id)
        else:
            unique_id = ids[1].recv()
        _process(body, unique_id, rank, size, pipe)

    def results(self, timeout=60):
        """What each returned or raised; None of those that were killed."""
        all_of_them = []
        for process, pipe in zip(self.all, self.pipes):
            got = None
            try:
                if pipe.poll(timeout if process.exitcode is None else 0):
                    got = pipe.recv()
            except EOFError:
                pass
            all_of_them.append(got)
        for process in self.all:
            process.join(timeout)
            assert process.exitcode is not None, "a rank hangs"
        return all_of_them
