"""replace_sdpa: an unchanged model's calls, served or left to torch, with torch's results."""

import itertools
import pickle
import sys
import unittest

from torch_cases import DEVICES, Base, reference, tensors, torch

import gpu_headroom as hr
import gpu_headroom.torch as ht
from gpu_headroom.torch import calls, checks, quick, sdpa


class ReplaceTest(Base):
    def test_torchs_function_is_ours_within(self):
        F, torchs = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
        q, k, v = tensors(heads=2)
        with ht.replace_sdpa() as seen:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=1.0), torch.zeros_like(o)))
            with ht.replace_sdpa() as inner:
                F.scaled_dot_product_attention(q, k, v)
            self.assertIsNot(F.scaled_dot_product_attention, torchs)
        self.assertIs(F.scaled_dot_product_attention, torchs)
        self.assertTrue(torch.equal(o, ht.attention(q, k, v, is_causal=True)))
        self.assertEqual((seen.served, inner.served), (1, 1))
        self.assertIn("left to torch: 1 calls: dropout_p is 1.0", seen.explain())

    def test_what_no_kernel_serves_is_torchs(self):
        from unittest import mock

        F = torch.nn.functional
        q, k, v = tensors(heads=2, seed=5)
        refusal = hr.Error("unsupported", "cuda:0 cannot be had")
        sdpa._known.clear()
        python_alone = mock.patch.object(quick, "attend", None)  # it knows this call
        with ht.replace_sdpa() as seen, mock.patch.object(calls, "context_of", side_effect=refusal), python_alone:
            F.scaled_dot_product_attention(q, k, v).sum().backward()
        self.assertEqual((seen.served, dict(seen.left)), (0, {"cuda:0 cannot be had": 1}))
        with ht.replace_sdpa(), mock.patch.object(calls, "context_of", side_effect=hr.Error("bug", "of ours")), python_alone:
            with self.assertRaisesRegex(hr.Error, "of ours"):
                F.scaled_dot_product_attention(q, k, v)

    def test_what_torch_refuses_is_refused_within(self):
        """A mask of a type or shape that torch's does not take was read all the same."""
        F = torch.nn.functional
        q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))

        def outcome(mask):
            try:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).shape
            except (RuntimeError, IndexError) as refused:
                return type(refused), str(refused)

        for mask in (torch.zeros(4, 4, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.bfloat16), torch.tensor(True)):
            want = outcome(mask)
            with ht.replace_sdpa() as seen:
                self.assertEqual(outcome(mask), want)
            self.assertRegex(seen.explain(), f"attn_mask is {mask.dtype} of {mask.dim()} dimensions, which torch refuses")
        for scale in (float("nan"), float("inf")):  # torch has a NaN for them
            want = F.scaled_dot_product_attention(q, k, v, scale=scale)
            with ht.replace_sdpa() as seen:
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, scale=scale).isnan(), want.isnan()))
            self.assertRegex(seen.explain(), f"scale is {scale}: it must be finite")

    def test_the_arguments_are_torchs(self):
        """What torch takes by name alone, and what it takes as True or False alone; in the second call too, which skips checks."""
        F = torch.nn.functional
        q, k, v = tensors(heads=2)
        outcomes = []
        for ours in (False, True):
            with ht.replace_sdpa():
                function = F.scaled_dot_product_attention if ours else sdpa._torchs
                for _ in range(2):
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)
                said = []
                for wrong, named in (((None, 0.0, False, 0.5), {}), ((), {"is_causal": 1}), ((), {"is_causal": None}), ((), {"is_causal": "x"}),
                                     ((), {"enable_gqa": 1}), ((), {"causal": True})):  # fmt: skip
                    with self.assertRaises(TypeError) as refused:
                        function(q, k, v, *wrong, **named)
                    said.append(str(refused.exception))
            outcomes.append(said)
        self.assertEqual(*outcomes)
        with ht.replace_sdpa():
            kept = F.scaled_dot_product_attention  # as a module may
        self.assertIs(pickle.loads(pickle.dumps(kept)), kept)

    def test_heads_and_dimensions_that_torch_takes_otherwise_or_not(self):
        F = torch.nn.functional
        q, one, two, three = torch.randn(2, 4, 5, 8), torch.randn(2, 1, 5, 8), torch.randn(5, 8), torch.randn(2, 5, 8)

        def outcome(given, named):
            try:
                return F.scaled_dot_product_attention(*given, **named).shape
            except (RuntimeError, IndexError) as refused:
                return type(refused), str(refused)

        for *given, named in (
            (one, q, q, {"enable_gqa": True}),
            (two, two, two, {"enable_gqa": True}),
            (one[:, :, :0], q, q, {}),  # the result has one head, too
            (one[:1, :, :0], q, q, {}),
            (one, q[:, :, :0], q[:, :, :0], {}),  # and without keys, since torch 2.15
            (three[:1], three[:1], three, {"enable_gqa": True}),
            (three, three, three, {"attn_mask": torch.ones(1, 1, 1, 5, dtype=torch.bool)}),  # torch's versions differ
        ):
            want = outcome(given, named)
            with self.subTest(shape=given[0].shape), ht.replace_sdpa() as seen:
                self.assertEqual(outcome(given, named), want)
            self.assertEqual(seen.served, 0)

    def test_nested_tensors_are_torchs(self):
        F, parts = torch.nn.functional, [torch.randn(5, 2, 8), torch.randn(7, 2, 8)]
        strided = torch.nested.nested_tensor([t.transpose(0, 1).contiguous() for t in parts])
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
        for x in (strided, jagged):
            want = F.scaled_dot_product_attention(x, x, x)
            with ht.replace_sdpa() as seen:
                got = F.scaled_dot_product_attention(x, x, x)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(got.unbind(), want.unbind())))
            self.assertEqual(seen.served, 0)
            self.assertIn("nested or sparse", seen.explain())

    def test_a_choice_among_torchs_kernels_is_respected(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        F = torch.nn.functional
        q, k, v = tensors(heads=2)
        several = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

        def called(chosen, **options):
            with ht.replace_sdpa(**options) as seen, sdpa_kernel(chosen):
                F.scaled_dot_product_attention(q, k, v)
            return "served" if seen.served else seen.explain()

        self.assertIn("math attention was chosen", called(SDPBackend.MATH))
        self.assertIn("flash attention was chosen", called([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]))
        self.assertEqual(called(several), "served")
        self.assertIn("math attention was chosen", called(SDPBackend.MATH, even_if_chosen=True))
        self.assertEqual(called(SDPBackend.FLASH_ATTENTION, even_if_chosen=True), "served")
        with ht.replace_sdpa() as seen, sdpa_kernel(SDPBackend.MATH):
            torch.compile(lambda: F.scaled_dot_product_attention(q, k, v), fullgraph=True, backend="aot_eager")()
        self.assertIn("math attention was chosen (sdpa_kernel) (in compiled code)", seen.explain())
        with self.assertRaisesRegex(TypeError, "tf32 is a str"), ht.replace_sdpa(tf32="no"):
            pass

    def test_float32_is_as_exact_as_torchs(self):
        from unittest import mock

        asked, F = [], torch.nn.functional

        def heard(*given, **named):
            asked.append(given[7])
            return checks.options_of(*given, **named)

        for device, said in itertools.product(DEVICES, (False, True)):
            q, k, v = tensors(device, heads=2, dim=64, seed=7)
            before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
            try:
                with mock.patch.object(sdpa, "options_of", heard), ht.replace_sdpa(tf32=said):
                    o = F.scaled_dot_product_attention(q, k, v)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before
            if not said:
                self.near(o, reference(q, k, v)[0], torch.float32)
        self.assertEqual(asked, [False, True] * len(DEVICES))

    def test_what_torch_broadcasts(self):
        F = torch.nn.functional
        g = torch.Generator().manual_seed(3)
        for shapes in (((2, 4, 9, 8), (2, 1, 7, 8), (2, 1, 7, 8)), ((2, 4, 9, 8), (1, 4, 7, 8), (2, 4, 7, 8)), ((4, 9, 8), (4, 7, 8), (4, 7, 8)),
                       ((9, 8), (7, 8), (7, 8)), ((1, 4, 9, 8), (3, 4, 7, 8), (3, 4, 7, 16)), ((2, 1, 9, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
                       ((2, 4, 9, 8), (2, 1, 7, 8), (2, 4, 7, 8))):  # fmt: skip
            for device in DEVICES:
                given = [torch.randn(s, generator=g).to(device).requires_grad_() for s in shapes]
                want = F.scaled_dot_product_attention(*given, is_causal=True)
                with ht.replace_sdpa() as seen:
                    o = F.scaled_dot_product_attention(*given, is_causal=True)
                self.assertEqual((seen.served, o.shape), (1, want.shape), seen.explain())
                up = torch.randn_like(o)
                for got, w in zip((o, *torch.autograd.grad(o, given, up)), (want, *torch.autograd.grad(want, given, up))):
                    self.near(got, w, torch.float32)

    def test_why_no_call_was_seen(self):
        import types

        module = types.ModuleType("somebodys_model")
        module.attend, sys.modules["somebodys_model"] = torch.nn.functional.scaled_dot_product_attention, module
        try:
            with ht.replace_sdpa() as seen:
                module.attend(*tensors(heads=2))
            self.assertIn("not seen: calls of somebodys_model.attend", seen.explain())
        finally:
            del sys.modules["somebodys_model"]
        with ht.replace_sdpa() as seen:
            pass
        self.assertIn("nothing called torch.nn.functional.scaled_dot_product_attention", seen.explain())
        q, k, v = tensors(heads=2)
        with ht.replace_sdpa() as seen:
            torch.compile(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v), fullgraph=True, backend="aot_eager")()
        self.assertIn("compiled: 1 calls became headroom.attention_forward", seen.explain())


if __name__ == "__main__":
    unittest.main()
