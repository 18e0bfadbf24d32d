"""The examples of python/examples, as a launcher starts them."""

import os
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"


def run(example, size):
    """What each rank printed, by the variables that torchrun sets."""
    job = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000)}
    ranks = [
        subprocess.Popen(
            [sys.executable, FOLDER / example],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    printed = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks)
    return printed


class Examples(unittest.TestCase):
    def test_all_reduce(self):
        self.assertEqual(run("all_reduce.py", 3), [f"rank {r} of 3: 3\n" for r in range(3)])


if __name__ == "__main__":
    unittest.main()
