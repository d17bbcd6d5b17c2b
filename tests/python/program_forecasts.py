"""A program under headroom forecast, without a GPU, and its answer. Exit code 77: skipped.

HEADROOM_PROGRAM names the program; torch has to be a build for CUDA."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)
if torch.version.cuda is None:
    print("skipped: this torch is a build for CPUs")
    sys.exit(77)
PROGRAM = os.environ.get("HEADROOM_PROGRAM", "")
if not os.path.exists(PROGRAM):
    print("skipped: HEADROOM_PROGRAM names no program")
    sys.exit(77)

STEP = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 4
model = nn.Sequential(*[Block(512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    x = torch.randn(batch, 1024, 512, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("SEEN", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
"""


class ProgramForecasts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def forecast(self, *words, options=(), code=0):
        command = [PROGRAM, "forecast", "--format", "json", "--db", os.path.join(self.folder.name, "results.db"), *options]
        ended = subprocess.run([*command, "--", sys.executable, *map(str, words)], capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, code, ended.stderr[-3000:])
        return json.loads(ended.stdout), ended.stderr
