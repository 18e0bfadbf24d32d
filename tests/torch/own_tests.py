#!/usr/bin/env python3
"""PyTorch's own tests of a process group, on sennit: every one that passes on gloo passes.

usage: own_tests.py [--record] [TEST...]

They are torch/testing/_internal/distributed/distributed_test.py, which lies in PyTorch's wheel; four processes each.
Many of them ask whether the backend is called gloo, so sennit is registered under that name. What passed on gloo stands
in tests/data/torch/passes_on_gloo.txt (--record writes it), what cannot pass yet, and why, in not_yet.txt beside it.
"""

import functools
import os
import pathlib
import sys
import tempfile
import unittest

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "torch"
RECORD = "--record" in sys.argv
os.environ |= {
    "BACKEND": "gloo",
    "WORLD_SIZE": "4",
    "TEMP_DIR": tempfile.mkdtemp(),
    "MASTER_ADDR": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
}

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
if not RECORD:
    import sennit_torch

    make = functools.partial(sennit_torch._process_group, name="gloo")
    dist.Backend.register_backend("gloo", make, extended_api=True, devices=["cpu"])

from torch.multiprocessing import get_context  # noqa: E402
from torch.testing._internal.distributed import distributed_test as theirs  # noqa: E402


class Own(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super(theirs.TestDistBackend, self).setUp()
        theirs.initialize_temp_directories()
        theirs.Barrier.init()
        self.skip_return_code_checks = [self.test_ddp_has_finalized.__wrapped__]
        # Forked, and not begun anew as theirs are: a tenth of the time.
        self._start_processes(get_context("fork").Process)


class Names(unittest.TextTestResult):
    """Remembers what passed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.passed = []

    def addSuccess(self, test):  # noqa: N802
        super().addSuccess(test)
        self.passed.append(test.id().split(".")[-1])


def lines(name):
    return [line.split(":")[0] for line in (DATA / name).read_text().splitlines() if line[:1] not in ("#", "")]


def main():
    asked = [argument for argument in sys.argv[1:] if argument != "--record"]
    if RECORD:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Own)
    else:
        names = asked or [name for name in lines("passes_on_gloo.txt") if name not in lines("not_yet.txt")]
        suite = unittest.TestSuite(Own(name) for name in names)
    result = unittest.TextTestRunner(resultclass=Names, verbosity=2).run(suite)
    if RECORD:
        head = f"# PyTorch {torch.__version__}, gloo, 4 processes: tests/torch/own_tests.py --record\n"
        (DATA / "passes_on_gloo.txt").write_text(head + "\n".join(sorted(result.passed)) + "\n")
        return 0
    print(f"{len(result.passed)} of {suite.countTestCases()} passed")
    return len(result.passed) != suite.countTestCases()


if __name__ == "__main__":
    sys.exit(main())
