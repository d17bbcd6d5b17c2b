"""FlashAttention-3's qv, where scores have a part of the values, against FP64."""

import itertools
import math
import unittest
import unittest.mock

from torch_cases import DEVICES, Base, reference, torch, visible

import gpu_headroom.torch.latent as latent
from gpu_headroom.torch import flash_attn_3 as fa

DIM, DIM_V = 16, 40


def drawn(device, len_q=17, len_k=23, dtype=torch.float32):
    """q, qv, k and v as [batch, len, heads, dim]."""
    g = torch.Generator().manual_seed(0)
    shapes = (2, len_q, 4, DIM), (2, len_q, 4, DIM_V), (2, len_k, 2, DIM), (2, len_k, 2, DIM_V)
    return [torch.randn(shape, generator=g).to(device, dtype) for shape in shapes]


def of_sequences(q, qv, k, v, **mask):
    """o and lse in FP64, as flash_attn_func has them: both parts of the scores are one product of longer rows."""
    joined = [torch.cat(pair, -1).transpose(1, 2) for pair in ((q, qv), (k, v))]
    o, lse = reference(*joined, v.transpose(1, 2), **mask)
    return o.transpose(1, 2), lse


class LatentTest(Base):
    def test_masks_and_gradients(self):
        """One row of one sequence at a time, a few rows, and all at once."""
        named = ({}, {"causal": True}, {"window_size": (5, 2)}, {"causal": True, "softcap": 3.0}, {"softmax_scale": 0.25})
        for device, scores, asked, (len_q, len_k) in itertools.product(DEVICES, (150, 1500, 1 << 24), named, ((17, 23), (23, 17))):
            given = [t.requires_grad_() for t in drawn(device, len_q, len_k)]
            q, qv, k, v = given
            with unittest.mock.patch.object(latent, "_SCORES", scores):
                o, lse = fa.flash_attn_func(q, k, v, qv=qv, return_attn_probs=True, **asked)
                made = torch.autograd.grad(o.sum(), given)
            window = {"window": (6, 2)} if "window_size" in asked else {"is_causal": "causal" in asked}
            want = [t.detach().requires_grad_() for t in given]
            want_o, want_lse = of_sequences(*want, align="bottom-right", scale=asked.get("softmax_scale"), softcap=asked.get("softcap", 0.0), **window)
            self.near(o, want_o, torch.float32, asked)
            self.near(lse[lse.isfinite()], want_lse[lse.isfinite().cpu()], torch.float32, asked)
            self.assertTrue(torch.equal(lse.isfinite().cpu(), want_lse.isfinite()))
            for got, expected in zip(made, torch.autograd.grad(want_o.sum(), want)):
                self.near(got, expected, torch.float32, asked)

    def test_nothing_is_kept_but_tensors_of_the_call(self):
        given = [t.requires_grad_() for t in drawn("cpu", 64, 64)]
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
            fa.flash_attn_func(given[0], *given[2:], qv=given[1])
        self.assertLess(max(sizes), 2 * 4 * 64 * 64, "no matrix of scores")

    def test_gradients_of_keys_are_added_in_float32(self):
        """However many blocks there are."""
        given = drawn("cpu", 256, 256, torch.bfloat16)
        exact = [t.double().requires_grad_() for t in given]
        want = torch.autograd.grad(of_sequences(*exact, is_causal=True)[0].sum(), exact[2:])
        apart = []
        for scores in (1 << 24, 1):
            asked = [t.clone().requires_grad_() for t in given]
            with unittest.mock.patch.object(latent, "_SCORES", scores):
                made = torch.autograd.grad(fa.flash_attn_func(asked[0], *asked[2:], causal=True, qv=asked[1]).sum(), asked[2:])
            apart.append([((a.double() - b).norm() / b.norm()).item() for a, b in zip(made, want)])
        for at_once, by_rows in zip(*apart):
            self.assertLess(by_rows, 1.2 * at_once)

    def test_autocast(self):
        """Inputs become bfloat16, as attention's; what is computed of them does not."""
        q, qv, k, v = drawn("cpu")
        want = of_sequences(*(t.bfloat16() for t in (q, qv, k, v)))
        with torch.autocast("cpu", torch.bfloat16):
            o, lse = fa.flash_attn_func(q, k, v, qv=qv, return_attn_probs=True)
        self.assertEqual((o.dtype, lse.dtype), (torch.bfloat16, torch.float32))
        self.near(o, want[0], torch.bfloat16)
        self.near(lse, want[1], torch.float32)

    def test_where_code_may_not_wait_for_numbers(self):
        given = q, *others = drawn("cpu")
        call = lambda q, qv, k, v: fa.flash_attn_func(q, k, v, causal=True, qv=qv)  # noqa: E731
        want = call(*given)
        self.near(torch.compile(call, fullgraph=True, backend="aot_eager")(*given), want, torch.float32)
        self.near(torch.vmap(call)(*(t[None] for t in given))[0], want, torch.float32)
        self.assertEqual(call(*(t.to("meta") for t in given)).shape, want.shape)
        leaf = q.clone().requires_grad_()
        self.near(torch.func.grad(lambda q: call(q, *others).sum())(q), torch.autograd.grad(call(leaf, *others).sum(), leaf)[0], torch.float32)

    def test_packed(self):
        for device in DEVICES:
            q, qv, k, v = (t.flatten(0, 1) for t in drawn(device, 16, 24))
            of_q, of_k = [0, 5, 5, 32], [0, 9, 20, 48]
            lists = [torch.tensor(t, dtype=torch.int32, device=device) for t in (of_q, of_k)]
            o, lse = fa.flash_attn_varlen_func(q, k, v, *lists, 27, 28, causal=True, qv=qv, return_attn_probs=True)
            self.assertEqual(lse.shape, (4, 32))
            for q0, q1, k0, k1 in ((0, 5, 0, 9), (5, 32, 20, 48)):
                want = of_sequences(q[None, q0:q1], qv[None, q0:q1], k[None, k0:k1], v[None, k0:k1], align="bottom-right", is_causal=True)
                self.near(o[q0:q1], want[0][0], torch.float32)
                self.near(lse[:, q0:q1], want[1][0], torch.float32)

    def test_chunks(self):
        q, qv, k, v = drawn("cpu", 23, 23)
        seen = visible(23, 23, is_causal=True) & (torch.arange(23)[:, None] // 5 == torch.arange(23) // 5)
        self.near(fa.flash_attn_func(q, k, v, causal=True, attention_chunk=5, qv=qv), of_sequences(q, qv, k, v, seen=seen)[0], torch.float32)

    def test_caches(self):
        """Lengths, pages and new keys, with queries as rows and packed."""
        for device in DEVICES:
            q, qv, k, v = drawn(device, 2, 32)
            numbers = lambda *n: torch.tensor(n, dtype=torch.int32, device=device)  # noqa: B023, E731
            want = torch.cat([of_sequences(q[b : b + 1], qv[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], align="bottom-right", is_causal=True)[0]
                              for b, n in ((0, 30), (1, 9))])  # fmt: skip
            table = numbers(5, 2, 7, 1, 0, 3, 4, 6).view(2, 4)
            pages = [torch.zeros(8, 8, *t.shape[2:], device=device) for t in (k, v)]
            for paged, whole in zip(pages, (k, v)):
                paged[table.long()] = whole.unflatten(1, (4, 8))
            lengths = numbers(30, 9)
            self.near(fa.flash_attn_with_kvcache(q, k, v, qv=qv, cache_seqlens=lengths, causal=True), want, torch.float32)
            self.near(fa.flash_attn_with_kvcache(q, *pages, qv=qv, cache_seqlens=lengths, page_table=table, causal=True), want, torch.float32)
            cut = [t.clone() for t in (k, v)]
            for t in cut:
                t[0, 28:], t[1, 7:] = 0, 0
            new = [torch.stack([t[0, 28:30], t[1, 7:9]]) for t in (k, v)]
            o = fa.flash_attn_with_kvcache(q, *cut, *new, qv=qv, cache_seqlens=lengths - 2, causal=True)
            self.near(o, want, torch.float32)
            packed = [torch.cat([t[0, 1:], t[1]]) for t in (q, qv)]
            o = fa.flash_attn_with_kvcache(packed[0], k, v, qv=packed[1], cache_seqlens=lengths, cu_seqlens_q=numbers(0, 1, 3), max_seqlen_q=2, causal=True)
            self.near(o, torch.cat([want[0, 1:], want[1]]), torch.float32)

    def test_types_and_nothing(self):
        for dtype in (torch.float16, torch.bfloat16):
            q, qv, k, v = drawn("cpu", dtype=dtype)
            o = fa.flash_attn_func(q, k, v, qv=qv)
            self.assertEqual(o.dtype, dtype)
            self.near(o, of_sequences(q, qv, k, v)[0], dtype)
        for len_q, len_k in ((0, 5), (5, 0)):
            q, qv, k, v = drawn("cpu", len_q, len_k)
            o, lse = fa.flash_attn_func(q, k, v, qv=qv, return_attn_probs=True)
            self.assertEqual((o.shape, lse.shape), ((2, len_q, 4, DIM_V), (2, 4, len_q)))
            self.assertTrue((o == 0).all() and (lse == -torch.inf).all())

    def test_refused(self):
        q, qv, k, v = drawn("cpu")
        for error, words, call in (
            (TypeError, "qv is a list, not a tensor", lambda: fa.flash_attn_func(q, k, v, qv=[1])),
            (TypeError, "qv is torch.float16 on cpu, q is torch.float32 on cpu", lambda: fa.flash_attn_func(q, k, v, qv=qv.half())),
            (TypeError, "q is torch.float64", lambda: fa.flash_attn_func(q.double(), k, v, qv=qv)),
            (ValueError, r"qv is \(2, 17, 4, 39\), it must be \(2, 17, 4, 40\)", lambda: fa.flash_attn_func(q, k, v, qv=qv[..., 1:])),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, "gpu_headroom.torch.flash_attn_3.flash_attn_func: .*" + words):
                call()
        with self.assertRaisesRegex(NotImplementedError, "s_aux is not served with qv"):
            fa.flash_attn_func(q, k, v, qv=qv, s_aux=torch.zeros(4))

    def test_refused_as_without_qv(self):
        q, qv, k, v = drawn("cpu")
        for error, words, call in (
            (ValueError, "3 query heads cannot share 2 key heads", lambda: fa.flash_attn_func(q[:, :, :3], k, v, qv=qv[:, :, :3])),
            (ValueError, "batch and head_dim must agree", lambda: fa.flash_attn_func(q, k[:1], v[:1], qv=qv)),
            (ValueError, "q has 3 dimensions", lambda: fa.flash_attn_func(q[0], k[0], v[0], qv=qv[0])),
            (ValueError, "softcap is nan: a number above 0", lambda: fa.flash_attn_func(q, k, v, qv=qv, softcap=math.nan)),
            (ValueError, "scale is inf: it must be finite", lambda: fa.flash_attn_func(q, k, v, qv=qv, softmax_scale=math.inf)),
            (TypeError, "k_cache is torch.float16, q is torch.float32", lambda: fa.flash_attn_with_kvcache(q, k.half(), v, qv=qv)),
            (ValueError, r"q is \(1, 17, 4, 16\) and k_cache is \(2, 23, 2, 16\)", lambda: fa.flash_attn_with_kvcache(q[:1], k, v, qv=qv[:1])),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                call()
        tokens = [t.flatten(0, 1) for t in (q, k, v, qv)]
        for error, words, of_q, of_k in (
            (ValueError, r"cu_seqlens_k\[0\] is \[0, 23, 99\]: from 0 on, in order, up to 46 positions", [0, 17, 34], [0, 23, 99]),
            (ValueError, r"cu_seqlens_q\[0\] is \[0, 20, 10\]", [0, 20, 10], [0, 23, 46]),
            (ValueError, r"cu_seqlens_q is \(1, 3\) and cu_seqlens_k is \(1, 4\)", [0, 17, 34], [0, 1, 23, 46]),
            (ValueError, r"it must be torch.int32 \(sequences \+ 1,\)", [0], [0]),
        ):
            lists = (torch.tensor(t, dtype=torch.int32) for t in (of_q, of_k))
            with self.subTest(words), self.assertRaisesRegex(error, words):
                fa.flash_attn_varlen_func(*tokens[:3], *lists, 34, 46, qv=tokens[3])


if __name__ == "__main__":
    unittest.main()
