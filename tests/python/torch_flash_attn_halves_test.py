"""flash-attn's forward and backward apart, against the whole functions under their names."""

import unittest
import unittest.mock

from torch_cases import DEVICES, Base, torch
from torch.utils._python_dispatch import TorchDispatchMode

import gpu_headroom.torch as ht
from gpu_headroom.torch import flash_attn as whole
from gpu_headroom.torch import flash_attn_halves as halves


def drawn(device, len_q=21, len_k=30):
    g = torch.Generator().manual_seed(0)
    shapes = (2, len_q, 4, 16), (2, len_k, 2, 16), (2, len_k, 2, 16), (2, len_q, 4, 16)
    return [torch.randn(shape, generator=g).to(device) for shape in shapes]


def numbers(device, *n):
    return torch.tensor(n, dtype=torch.int32, device=device)


class CountedCopies:
    """Counts copies into tensors that were given."""

    def __enter__(self):
        self.copies, theirs = 0, torch.Tensor.copy_

        def counted(*given):
            self.copies += 1
            return theirs(*given)

        self.patch = unittest.mock.patch.object(torch.Tensor, "copy_", counted)
        self.patch.start()
        return self

    def __exit__(self, *_):
        self.patch.stop()


class HalvesTest(Base):
    def same(self, got, want):
        for a, b in zip(got, want):
            self.near(a, b, torch.float32)

    def test_dense(self):
        cases = ((False, (-1, -1), 0.0), (True, (-1, -1), 0.0), (True, (5, -1), 0.0), (False, (4, 3), 2.0))
        for device in DEVICES:
            *given, d_o = drawn(device)
            slopes = torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)
            for causal, sides, softcap in cases:
                for alibi in (None, slopes):
                    q, k, v = (t.clone().requires_grad_() for t in given)
                    o, lse, _ = whole.flash_attn_func(q, k, v, 0.0, None, causal, sides, softcap, alibi, return_attn_probs=True)
                    want = torch.autograd.grad(o, (q, k, v), d_o)
                    options = 0.0, None, causal, *sides, softcap, alibi
                    made = halves._flash_attn_forward(q, k, v, *options, False)
                    self.assertFalse(made[0].requires_grad)
                    self.same(made[:2], (o, lse))
                    into = [torch.full_like(t, torch.nan) for t in given]
                    of_rows = halves._flash_attn_backward(d_o, *given, made[0], made[1], *into, *options, True)
                    self.same(into, want)
                    self.near(of_rows, (d_o * o).sum(-1).transpose(1, 2), torch.float32)
            kept = torch.full_like(given[1], torch.nan)
            halves._flash_attn_backward(d_o, *given, *halves._flash_attn_forward(*given, 0.0, None, True)[:2], None, kept, None, 0.0, None, True)
            self.assertTrue(bool(kept.isfinite().all()))

    def test_dropout_is_drawn_again_from_the_state(self):
        for device in DEVICES:
            *given, d_o = drawn(device)
            o, lse, told, state = halves._flash_attn_forward(*given, 0.3, None, True, return_softmax=True)
            self.assertEqual((told.shape, state.shape, state.dtype), ((2, 4, 21, 30), (2,), torch.int64))
            q, k, v = (t.clone().requires_grad_() for t in given)
            again = ht.attention(q, k, v, dropout_p=0.3, is_causal=True, align="bottom-right", layout="blhd", seed=state)
            self.assertTrue(torch.equal(again, o))
            into = [torch.empty_like(t) for t in given]
            halves._flash_attn_backward(d_o, *given, o, lse, *into, 0.3, None, True, rng_state=state)
            self.same(into, torch.autograd.grad(again, (q, k, v), d_o))

    def test_packed(self):
        for device in DEVICES:
            given = [t.flatten(0, 1) for t in drawn(device)]
            *given, d_o = given
            lists = numbers(device, 0, 9, 42), numbers(device, 0, 31, 60)
            for alibi in (None, torch.rand(2, 4, device=device)):
                q, k, v = (t.clone().requires_grad_() for t in given)
                o, lse, _ = whole.flash_attn_varlen_func(q, k, v, *lists, 33, 31, causal=True, alibi_slopes=alibi, return_attn_probs=True)
                made = halves._flash_attn_varlen_forward(*given, *lists, 33, 31, 0.0, None, True, alibi_slopes=alibi)
                self.same(made[:2], (o, lse))
                into = [torch.full_like(t, torch.nan) for t in given]
                halves._flash_attn_varlen_backward(d_o, *given, *made[:2], *into, *lists, 33, 31, 0.0, None, True, alibi_slopes=alibi)
                self.same(into, torch.autograd.grad(o, (q, k, v), d_o))

    def test_pages(self):
        for device in DEVICES:
            g = torch.Generator().manual_seed(0)
            pages = [torch.randn(6, 8, 2, 16, generator=g).to(device) for _ in range(2)]
            q, table, used = torch.randn(2, 4, 16, generator=g).to(device), numbers(device, 4, 0, 3, 1, 5, 2).view(2, 3), numbers(device, 20, 7)
            lists = numbers(device, 0, 1, 2), numbers(device, 0, 24, 48)
            o, lse, *_ = halves._flash_attn_varlen_forward(q, *pages, *lists, 1, 24, 0.0, None, False, block_table=table, seqused_k=used)
            want = whole.flash_attn_with_kvcache(q[:, None], *pages, cache_seqlens=used, block_table=table, return_softmax_lse=True)
            self.same((o, lse), (want[0][:, 0], want[1][..., 0].T))

    def test_no_copies_of_whole_tensors_are_made(self):
        """Of what ring attention drops, the sums of rows."""
        q, k, v, d_o = (t.bfloat16() for t in drawn("cpu", 40, 40))
        o, lse, *_ = halves._flash_attn_forward(q, k, v, 0.0, None, True)
        made = []

        class Noted(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                out = function(*args, **(kwargs or {}))
                made.extend(t.numel() for t in [out] if isinstance(t, torch.Tensor) and t.dtype == torch.float32)
                return out

        with unittest.mock.patch.object(halves, "_AT_ONCE", 1024), Noted():
            of_rows = halves._flash_attn_backward(d_o, q, k, v, o, lse, None, None, None, 0.0, None, True)
        self.near(of_rows, (d_o.double() * o.double()).sum(-1).transpose(1, 2), torch.float32)
        self.assertLessEqual(max(made), 1024)

    def test_gradients_are_written_where_they_are_given(self):
        """Into tensors of the caller's own, and views of larger ones, without others of their size; what no kernel writes gets a copy."""
        for device in DEVICES:
            *given, d_o = drawn(device, 40, 40)
            o, lse, *_ = halves._flash_attn_forward(*given, 0.0, None, True)
            want = [torch.empty_like(t) for t in given]
            halves._flash_attn_backward(d_o, *given, o, lse, *want, 0.0, None, True)
            dkv = torch.full((2, 40, 2, 2, 16), torch.nan, device=device)
            wide = torch.full((2, 40, 4, 32), torch.nan, device=device)
            for dq, dk, dv, copied in (
                (wide[..., :16], dkv[:, :, 0], dkv[:, :, 1], 0),
                (torch.empty_like(given[0]), None, torch.empty_like(given[2]), 0),
                (torch.empty(2, 40, 16, 4, device=device).transpose(2, 3), dkv[:, :, 0], dkv[:, :, 1], 1),
                (given[0].clone().double(), dkv[:, :, 0], dkv[:, :, 1], 1),
            ):
                with CountedCopies() as seen:
                    halves._flash_attn_backward(d_o, *given, o, lse, dq, dk, dv, 0.0, None, True)
                self.assertEqual(seen.copies, copied)
                self.same(*zip(*[(a, b) for a, b in zip((dq, dk, dv), want) if a is not None]))
            self.assertTrue(bool(wide[..., 16:].isnan().all()))
            q, k, v = (t.clone() for t in given)
            halves._flash_attn_backward(d_o, q, k, v, o, lse, q, k, v, 0.0, None, True)  # over what they are gradients of
            self.same((q, k, v), want)
            lists = numbers(device, 0, 30, 80)
            packed = [t.flatten(0, 1) for t in (d_o, *given)]
            o, lse, *_ = halves._flash_attn_varlen_forward(*packed[1:], lists, lists, 50, 50, 0.0, None, True)
            want = [torch.empty_like(t) for t in packed[1:]]
            halves._flash_attn_varlen_backward(*packed, o, lse, *want, lists, lists, 50, 50, 0.0, None, True)
            dq, dkv = torch.full((80, 4, 16), torch.nan, device=device), torch.full((80, 2, 2, 16), torch.nan, device=device)
            with CountedCopies() as seen:
                halves._flash_attn_varlen_backward(*packed, o, lse, dq, *dkv.unbind(1), lists, lists, 50, 50, 0.0, None, True)
            self.assertEqual(seen.copies, 0)
            self.same((dq, *dkv.unbind(1)), want)

    def test_refused(self):
        q, k, v = (t.flatten(0, 1) for t in drawn("cpu")[:3])
        lists = numbers("cpu", 0, 42), numbers("cpu", 0, 60)
        call = lambda **named: halves._flash_attn_varlen_forward(q, k, v, *lists, 42, 60, 0.0, None, True, **named)  # noqa: E731
        with self.assertRaisesRegex(RuntimeError, "num_splits > 1 is not supported"):
            call(num_splits=2)
        for named in ({"leftpad_k": numbers("cpu", 1)}, {"seqused_k": numbers("cpu", 1)}):
            with self.assertRaisesRegex(NotImplementedError, "are not served"):
                call(**named)


if __name__ == "__main__":
    unittest.main()
