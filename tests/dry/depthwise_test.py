"""Depthwise convolutions, for each of which cuDNN has a kernel that it compiles for the shape: a dry run asks for its workspace and compiles nothing."""

import unittest

from dry_program import Dry

PROGRAM = """
import time
import torch
torch.ops.aten.convolution(torch.zeros(1, 8, 8, 8, device="cuda"), torch.zeros(8, 8, 3, 3, device="cuda"), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
begin = time.process_time()  # cuDNN is loaded
form = {"device": "cuda", "dtype": torch.float16}
x = torch.zeros(16, 96, 48, 48, **form).to(memory_format=torch.channels_last).requires_grad_()
w = torch.zeros(96, 1, 7, 7, **form).to(memory_format=torch.channels_last).requires_grad_()
def extra(call):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = [r for r in call() if r is not None]
    return torch.cuda.max_memory_allocated() - before - sum(r.numel() * r.element_size() for r in results)
rest = (None, [1, 1], [3, 3], [1, 1], False, [0, 0], 96)
y = torch.ops.aten.convolution(x, w, *rest)
print(extra(lambda: [torch.ops.aten.convolution(x, w, *rest)]))
print(extra(lambda: torch.ops.aten.convolution_backward(y, x, w, *rest, [True, False, False])))
print(extra(lambda: torch.ops.aten.convolution_backward(y, x, w, *rest, [False, True, False])))
print(torch.backends.cudnn.version(), time.process_time() - begin)
"""


class Depthwise(Dry):
    def test_nothing_is_compiled_and_the_workspace_is_the_kernels(self):
        forward, data, weight, words = self.dry(PROGRAM)[0]
        version, seconds = words.split()
        self.assertLess(float(seconds), 0.6, "to compile the three kernels took 2.4 s")
        self.assertEqual((forward, data), ("0", "0"))
        if int(version) // 100 == 919:
            self.assertLessEqual(2408448, int(weight))  # what cuDNN 9.19 says of the plan that it makes
            self.assertLess(int(weight), 2408448 + 1024)


if __name__ == "__main__":
    unittest.main()
