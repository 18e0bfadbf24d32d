"""The PyTorch examples of python/examples, under torchrun with no other variable."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"
RANKS = 4


def run(example, *arguments):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    return subprocess.run(
        [*launcher, FOLDER / example, *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120
    ).stdout


def trained_here(model, optimizer):
    """Rank 0's last loss, by one process that has the data of all ranks, which differ."""
    draws = [torch.Generator().manual_seed(1 + rank) for rank in range(RANKS)]
    for _ in range(50):
        losses = []
        for draw in draws:
            x = torch.randn(32, 16, generator=draw)
            losses.append((model(x) - x.sum(1, keepdim=True)).pow(2).mean())
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    return losses[0].item()


class Examples(unittest.TestCase):
    def same_loss(self, example, model, optimizer):
        expected = trained_here(model, optimizer(model.parameters(), lr=0.01))
        self.assertAlmostEqual(float(run(example).split()[1]), expected, delta=2e-3)

    def test_ddp(self):
        torch.manual_seed(0)
        self.same_loss("torch_ddp.py", torch.nn.Linear(16, 1), torch.optim.SGD)

    def test_fsdp2(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.same_loss("torch_fsdp2.py", model, torch.optim.Adam)

    def test_dtensor(self):
        self.assertLess(float(run("torch_dtensor.py").split()[2]), 1e-4)

    def test_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("torch_checkpoint.py", folder), "step 7, weight 3\n")


if __name__ == "__main__":
    unittest.main()
