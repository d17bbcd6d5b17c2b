"""Matrices that keep two of each four numbers (torch.sparse.to_sparse_semi_structured): cuSPARSELt is answered as a card would, its own memory is not known."""

import unittest

from dry_program import Dry

PROGRAM = """
import torch
from torch import nn
from torch.sparse import to_sparse_semi_structured
weight = torch.randn(512, 256, device="cuda", dtype=torch.float16) * torch.tensor([1, 1, 0, 0], device="cuda").repeat(512, 64)
before = torch.cuda.memory_allocated()
linear = nn.Linear(256, 512, device="cuda", dtype=torch.float16)
linear.weight = nn.Parameter(to_sparse_semi_structured(weight), requires_grad=False)
print(torch.cuda.memory_allocated() - before - linear.bias.numel() * 2)
with torch.inference_mode():
    print(tuple(linear(torch.randn(128, 256, device="cuda", dtype=torch.float16)).shape))
"""


class SemiStructured(Dry):
    def test_a_compressed_weight_is_nine_sixteenths_and_multiplies(self):
        lines, said = self.dry(PROGRAM)
        self.assertEqual(lines, [str(512 * 256 * 2 * 9 // 16), "(128, 512)"])


if __name__ == "__main__":
    unittest.main()
