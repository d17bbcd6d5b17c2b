"""Programs of PyTorch, run dry with the observer, for the tests beside this file. Without a torch that has CUDA they end with exit code 77: skipped.

HEADROOM_DRY_LIBRARY is libheadroom_dry.so. Each program runs in a process of its own; marks are printed by a library of four lines before it."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

try:
    import torch

    if torch.version.cuda is None:
        print("skipped: this torch has no CUDA")
        sys.exit(77)
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)

SOURCE = os.environ["HEADROOM_SOURCE_DIR"]
LIBRARY = os.environ["HEADROOM_DRY_LIBRARY"]
OBSERVER = os.path.join(SOURCE, "src", "dry", "observer")
MARKS = """
#include <cstdio>
#include <cstdint>
extern "C" void headroom_dry_mark(const char* what, const char* text, std::int64_t value) { std::printf("mark %s|%s|%ld\\n", what, text, long(value)); std::fflush(stdout); }
"""
NET = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.Linear(4 * w, w)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
class Net(nn.Module):
    def __init__(self, w=256, n=4):
        super().__init__()
        self.words, self.blocks, self.out = nn.Embedding(1000, w), nn.ModuleList(Block(w) for _ in range(n)), nn.Linear(w, 1000)
    def forward(self, ids):
        x = self.words(ids)
        for b in self.blocks:
            x = b(x)
        return self.out(x)
torch.manual_seed(0)
net = Net().cuda()
ids = torch.randint(1000, (8, 128), device="cuda")
def step(optimizer, autocast=False):
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        loss = nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


class Dry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = cls.scratch.name
        cls.marks = os.path.join(folder, "marks.so")
        with open(os.path.join(folder, "marks.cpp"), "w") as f:
            f.write(MARKS)
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", os.path.join(folder, "marks.cpp"), "-o", cls.marks], check=True)
        for name in "libcuda.so.1", "libnvidia-ml.so.1":
            os.symlink(os.path.abspath(LIBRARY), os.path.join(folder, name))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def dry(self, program, code=0, **environment):
        """What a program prints, without marks, and its marks as (what, text, value)."""
        folder = self.scratch.name
        path = os.path.join(folder, "program.py")
        with open(path, "w") as f:
            f.write(program if program.startswith("\nimport") else textwrap.dedent(program))
        env = {**os.environ, "LD_PRELOAD": f"{self.marks}:{os.path.abspath(LIBRARY)}", "LD_LIBRARY_PATH": folder, "TRITON_LIBCUDA_PATH": folder,
               "PYTHONPATH": OBSERVER, "HEADROOM_DRY_FOLDER": folder, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout[-2000:] + done.stderr[-2000:])
        lines = done.stdout.split("\n")[:-1]
        marks = [tuple(line[5:].rsplit("|", 1)[0].split("|", 1)) + (int(line.rsplit("|", 1)[1]),) for line in lines if line.startswith("mark ")]
        return [line for line in lines if not line.startswith("mark ")], marks
