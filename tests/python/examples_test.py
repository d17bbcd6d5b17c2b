"""Every program of examples/python runs and agrees with what it compares itself with. Exit code 77 says: skipped, and why."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")
if importlib.util.find_spec("numpy") is None:
    print("skipped: NumPy is not installed")
    sys.exit(77)


def has_card():
    import torch

    return torch.cuda.is_available()


class ExamplesTest(unittest.TestCase):
    def test_every_program(self):
        names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".py"))
        self.assertGreater(len(names), 3)
        for name in names:
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                text = file.read()
            needs = re.findall(r"^import (cupy|jax|numpy|torch)\b", text, re.M)
            with self.subTest(name):
                self.assertTrue(needs, "an example is about somebody's arrays")
                if any(importlib.util.find_spec(x) is None for x in needs):
                    print(f"{name}: not run, {' and '.join(needs)} are not installed")
                    continue
                if ".cuda()" in text and not has_card():
                    print(f"{name}: not run, it needs a GPU")
                    continue
                ended = subprocess.run([sys.executable, name], cwd=FOLDER, capture_output=True, text=True, timeout=300)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                for number in re.findall(r"\d\.\de[+-]\d+", ended.stdout):
                    self.assertLess(float(number), 1e-5, ended.stdout)

    def test_the_courses_function(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        sys.path.insert(0, FOLDER)
        import course_attention

        with open(course_attention.__file__, encoding="utf-8") as file:
            self.assertLess(len(file.readlines()), 45, "shorter than a screen")
        apply = course_attention.get_flashattention_autograd_function_pytorch().apply
        for device in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
            for is_causal in (False, True):
                q, k, v = (torch.randn(4, 128, 64, device=device, requires_grad=True) for _ in range(3))
                scores = q @ k.transpose(1, 2) / 8
                if is_causal:
                    scores = scores.masked_fill(torch.ones(128, 128, dtype=torch.bool, device=device).triu(1), -1e6)
                want = torch.softmax(scores, -1) @ v
                o = apply(q, k, v, is_causal)
                kept = [t for t in o.grad_fn.saved_tensors if t.shape == (4, 128)]
                self.assertEqual(len(kept), 1, "LSE is the one saved tensor of its shape")
                torch.testing.assert_close(kept[0], torch.logsumexp(scores, -1), rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(o, want, rtol=1e-4, atol=1e-4)
                up = torch.randn_like(o)
                for g, w in zip(torch.autograd.grad(o, [q, k, v], up), torch.autograd.grad(want, [q, k, v], up)):
                    torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
