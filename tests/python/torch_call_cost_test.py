"""What a call costs that was asked before: counted, because times differ from machine to machine. docs/torch.md has the times."""

import os
import sys
import unittest

from torch_cases import Base, torch

import gpu_headroom.torch as ht
from gpu_headroom.torch import quick
from gpu_headroom.torch.flash_attn import flash_attn_func, flash_attn_with_kvcache
from gpu_headroom.torch.flash_attn_3 import flash_attn_with_kvcache as flash_attn_with_kvcache_3

OURS = os.path.dirname(ht.__file__)


def counted(function):
    """How many functions our own code calls, those in C too, and what `function` returns."""
    for _ in range(3):
        function()
    seen = 0

    def note(frame, event, _):
        nonlocal seen
        entered = frame if event == "c_call" else frame.f_back if event == "call" else None  # its caller
        seen += entered is not None and entered.f_code.co_filename.startswith(OURS)

    sys.setprofile(note)
    try:
        made = function()
    finally:
        sys.setprofile(None)
    return seen, made


class CallCostTest(Base):
    def setUp(self):
        self.q, self.k, self.v = (torch.randn(1, 2, 16, 64, requires_grad=True) for _ in range(3))

    def test_a_call_that_was_asked_before_calls_few_functions(self):
        with ht.replace_sdpa():
            doors = (ht.attention, 31, 4), (flash_attn_func, 33, 6), (torch.nn.functional.scaled_dot_product_attention, 39, 11)
            for door, in_python, quickly in doors:
                calls, o = counted(lambda door=door: door(self.q, self.k, self.v))
                self.assertLessEqual(calls, in_python if quick.attend is None else quickly, door.__name__)
                up = torch.ones_like(o)
                calls, _ = counted(lambda o=o, up=up: torch.autograd.grad(o, [self.q, self.k, self.v], up, retain_graph=True))
                self.assertLessEqual(calls, 25 if quick.attend is None else 0, door.__name__)

    def test_a_call_over_a_cache_that_was_asked_before_calls_few_functions(self):
        q, new, (k, v), n = torch.randn(1, 1, 2, 64), torch.randn(1, 1, 2, 64), (torch.randn(1, 16, 2, 64) for _ in range(2)), torch.tensor([9])
        pages = torch.zeros(1, 1, dtype=torch.int32)
        calls = {
            "no lengths": (lambda: ht.attention_with_cache(q, k, v, layout="blhd"), 41),
            "lengths": (lambda: ht.attention_with_cache(q, k, v, n, layout="blhd"), 55),
            "pages": (lambda: ht.attention_with_cache(q, k, v, n, pages, layout="blhd"), 58),
            "flash-attn": (lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=n), 68),
            "FlashAttention-3": (lambda: flash_attn_with_kvcache_3(q, k, v, cache_seqlens=n), 87),
            "new keys": (lambda: flash_attn_with_kvcache(q, k, v, new, new, cache_seqlens=n), 121),
        }
        for name, (call, most) in calls.items():
            with torch.no_grad():
                self.assertLessEqual(counted(call)[0], most if quick.attend is None or name != "no lengths" else 6, name)

    def test_autograd_keeps_and_passes_no_more_than_it_needs(self):
        o = [ht.attention(self.q, self.k, self.v, is_causal=True) for _ in range(3)][2]
        node = o.grad_fn
        self.assertEqual(len(node.saved_tensors), 5)  # q, k, v, o, lse
        self.assertLessEqual(len(node.needs_input_grad), 5)
        o, lse = ht.attention(self.q, self.k, self.v, is_causal=True, return_lse=True)
        self.assertIs(o.grad_fn, lse.grad_fn)

    def test_gradients_that_are_made_like_their_tensors_have_the_strides_of_those_that_are_not(self):
        for swapped in (False, True):  # the second is what a projection writes: dq is made like q
            q, k, v = ((x.detach().transpose(1, 2).contiguous().transpose(1, 2) if swapped else x.detach()).requires_grad_() for x in (self.q, self.k, self.v))
            o = ht.attention(q, k, v)
            made = (o, *torch.autograd.grad(o.sum(), [q, k, v]))
            self.assertEqual([t.stride() for t in made], [(2048, 64, 128, 1)] * 4)

    def test_tensors_without_strides_are_refused_in_a_sentence(self):
        nested = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 4, 8)])
        sparse = torch.randn(1, 2, 3, 8).to_sparse()
        for t in (nested, sparse):
            with self.assertRaisesRegex(ValueError, "nested or sparse: only strided"):
                ht.attention(t, t, t)


if __name__ == "__main__":
    unittest.main()
