"""What gpu_headroom.torch has under FlashAttention-3's names, against our attention and FP64."""

import itertools
import unittest

from torch_cases import DEVICES, Base, reference, tensors, torch

import gpu_headroom.torch as ht
from gpu_headroom.torch import flash_attn_3 as fa


def turned(device, **sizes):
    """q, k and v as [batch, len, heads, head_dim]."""
    return [x.detach().transpose(1, 2) for x in tensors(device, **sizes)]


def numbers(device, *n):
    return torch.tensor(n, dtype=torch.int32, device=device)


def in_chunks(len_q, len_k, chunk, causal):
    at = torch.arange(len_q)[:, None] + len_k - len_q
    first, key = at - at % chunk, torch.arange(len_k)
    return ((key >= first) & (key < first + chunk) & ((key <= at) | (not causal)))[None, None]


class RowsBehindTest(Base):
    def test_rows_behind_the_last_sequence_see_nothing(self):
        """They saw keys that are not used, and what keys lie behind the last sequence."""
        for device, more in itertools.product(DEVICES, ({"attention_chunk": 4}, {"seqused_q": (5, 2)}, {"seqused_k": (5, 3)}, {})):
            q, k, v = (torch.randn(12, 2, 16, device=device, requires_grad=True) for _ in range(3))
            named = {name: numbers(device, *value) if isinstance(value, tuple) else value for name, value in more.items()}
            o = fa.flash_attn_varlen_func(q, k, v, numbers(device, 0, 5, 9), numbers(device, 0, 6, 10), 5, 6, **named)
            self.assertFalse(o[9:].any(), more)
            for gradient, end in zip(torch.autograd.grad(o.sum(), (q, k, v)), (9, 10, 10)):
                self.assertFalse(gradient[end:].any(), more)


class FlashAttn3Test(Base):
    def of_sequence(self, q, k, v, causal=False, window=(-1, -1), chunk=0):
        """o [len_q, heads, head_dim] of one sequence in FP64."""
        q, k, v = (x[None].transpose(1, 2) for x in (q, k, v))
        if chunk:
            return reference(q, k, v, seen=in_chunks(q.shape[2], k.shape[2], chunk, causal))[0][0].transpose(0, 1)
        mask = {"window": (window[0] + 1, window[1])} if window[0] >= 0 else {"is_causal": causal}
        return reference(q, k, v, align="bottom-right", **mask)[0][0].transpose(0, 1)

    def test_dense(self):
        for device, (len_q, len_k), named in itertools.product(
            DEVICES, ((33, 40), (40, 33)), ({}, {"causal": True}, {"window_size": (6, 2)}, {"attention_chunk": 16}, {"attention_chunk": 7, "causal": True})
        ):
            q, k, v = (x.requires_grad_() for x in turned(device, len_q=len_q, len_k=len_k))
            o, lse = fa.flash_attn_func(q, k, v, return_attn_probs=True, num_splits=3, pack_gqa=True, **named)
            self.assertEqual(lse.shape, (2, 4, len_q))
            words = {"window_size": "window", "attention_chunk": "chunk"}
            want = [self.of_sequence(q[b], k[b], v[b], **{words.get(name, name): value for name, value in named.items()}) for b in (0, 1)]
            self.near(o, torch.stack(want), torch.float32, named)
            self.assertTrue(all(g.isfinite().all() for g in torch.autograd.grad(o.sum(), (q, k, v))))
        for error, words, named in (
            (ValueError, "flash_attn_func: attention_chunk is -3: a number of keys", {"attention_chunk": -3}),
            (ValueError, "attention_chunk is None", {"attention_chunk": None}),
            (ValueError, "softcap is None: a number above 0", {"softcap": None}),
            (TypeError, "window_size is None: two whole numbers", {"window_size": None}),
            (TypeError, r"window_size is \(1, 2, 3\)", {"window_size": (1, 2, 3)}),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                fa.flash_attn_func(q, k, v, **named)
        with self.assertRaisesRegex(TypeError, r"q is \[tensor.*: a tensor \[batch"):
            fa.flash_attn_func([q], k, v)
        sides = torch.tensor([6, 2])
        self.assertTrue(torch.equal(fa.flash_attn_func(q, k, v, window_size=sides), fa.flash_attn_func(q, k, v, window_size=(6, 2))))
        packed = torch.cat([q[:, :33], k, v], 2)
        want = fa.flash_attn_func(q[:, :33], k, v, causal=True)
        self.assertTrue(torch.equal(fa.flash_attn_qkvpacked_func(packed, causal=True, num_heads_q=4), want))
        self.assertTrue(torch.equal(fa.flash_attn_qkvpacked_func(torch.stack([k, k, v], 2)), fa.flash_attn_func(k, k, v)))

    def test_values_of_more_than_256_dimensions(self):
        for device in DEVICES:
            q, k, _ = turned(device)
            v = torch.randn(2, 40, 2, 300, device=device, requires_grad=True)
            o, lse = fa.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
            self.near(o, torch.stack([self.of_sequence(q[b], k[b], v[b], causal=True) for b in (0, 1)]), torch.float32)
            self.near(lse, fa.flash_attn_func(q, k, v[..., :16], causal=True, return_attn_probs=True)[1], torch.float32)
            self.assertEqual(torch.autograd.grad(o.sum(), v)[0].shape, v.shape)
            cu = [numbers(device, 0, 33, 66), numbers(device, 0, 40, 80)]
            self.near(fa.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), *cu, 33, 40, causal=True).view(o.shape), o, torch.float32)
            self.near(fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=40, causal=True), o, torch.float32)

    def test_sinks(self):
        """As vLLM's and transformers' builds have them, for gpt-oss."""
        for device in DEVICES:
            q, k, v = turned(device)
            sink = torch.randn(4, device=device, requires_grad=True)
            want = ht.attention(q, k, v, is_causal=True, align="bottom-right", layout="blhd", sink=sink)
            self.assertGreater((want - fa.flash_attn_func(q, k, v, causal=True)).abs().max().item(), 0.05)
            o = fa.flash_attn_func(q, k, v, causal=True, s_aux=sink)
            self.near(o, want, torch.float32)
            self.near(torch.autograd.grad(o.sum(), sink)[0], torch.autograd.grad(want.sum(), sink)[0], torch.float32)
            cu = [numbers(device, 0, 33, 66), numbers(device, 0, 40, 80)]
            self.near(fa.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), *cu, 33, 40, causal=True, s_aux=sink).view(o.shape), want, torch.float32)
            self.near(fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=40, causal=True, s_aux=sink), want, torch.float32)
            begins = numbers(device, 0, 0)
            self.near(fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=40, cache_leftpad=begins, causal=True, s_aux=sink), want, torch.float32)

    def test_in_8_bits(self):
        for device in DEVICES:
            q, k, v = (x.to(torch.float8_e4m3fn) for x in turned(device))
            scales = [torch.rand(2, 2, device=device) + 0.5 for _ in range(3)]
            exact = [x.double() * s.double().repeat_interleave(x.shape[2] // 2, 1)[:, None, :, None] for x, s in zip((q, k, v), scales)]
            o = fa.flash_attn_func(q, k, v, None, True, None, *scales)
            self.assertEqual(o.dtype, torch.bfloat16)
            self.near(o, torch.stack([self.of_sequence(*(x[b] for x in exact), causal=True) for b in (0, 1)]), torch.bfloat16)
            cu = [numbers(device, 0, 33, 66), numbers(device, 0, 40, 80)]
            packed = fa.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), *cu, 33, 40, None, None, None, True, None, *scales)
            self.near(packed.view(o.shape), o.double(), torch.bfloat16)

    def test_packed_with_tokens_that_are_not_used(self):
        for device, chunk in itertools.product(DEVICES, (0, 8)):
            q, k, v = (x.flatten(0, 1) for x in turned(device, len_q=33, len_k=40))
            cu_q, cu_k, used_q, used_k = ([0, 30, 30, 66], [0, 50, 60, 80], [25, 0, 36], [45, 10, 12])
            o, lse = fa.flash_attn_varlen_func(q, k, v, *(numbers(device, *n) for n in (cu_q, cu_k)), 36, 50, *(numbers(device, *n) for n in (used_q, used_k)),
                                               causal=True, attention_chunk=chunk, return_attn_probs=True)  # fmt: skip
            self.assertEqual(lse.shape, (4, 66))
            want = torch.zeros(66, 4, 16, dtype=torch.float64)
            for a, b, n, m in zip(cu_q, cu_k, used_q, used_k):
                want[a : a + n] = self.of_sequence(q[a : a + n], k[b : b + m], v[b : b + m], causal=True, chunk=chunk)
            self.near(o, want, torch.float32, chunk)

    def test_caches(self):
        for device, paged, chunk, padded, packed in itertools.product(DEVICES, (False, True), (0, 7), (False, True), (False, True)):
            what = paged, chunk, padded, packed
            q, new_k, new_v = turned(device, len_q=3, len_k=3)
            k, v = (torch.randn(2, 32, 2, 16, device=device) for _ in range(2))
            lengths, left = [20, 9], [4, 0]
            many = [2, 3] if packed else [3, 3]  # queries and new keys of each sequence
            want = []
            for b, (n, m) in enumerate(zip(lengths, many)):
                keys, values = (torch.cat([cache[b, :n], new[b, :m]])[left[b] * padded :] for cache, new in ((k, new_k), (v, new_v)))
                want.append(self.of_sequence(q[b, :m], keys, values, causal=True, chunk=chunk))
            caches, named = [k.clone(), v.clone()], {}
            if paged:
                table = numbers(device, 5, 2, 7, 1, 0, 3, 4, 6).view(2, 4)
                caches, named = [torch.zeros(8, 8, 2, 16, device=device) for _ in range(2)], {"page_table": table}
                for pages, cache in zip(caches, (k, v)):
                    pages[table.long()] = cache.unflatten(1, (4, 8))
            if padded:
                named["cache_leftpad"] = numbers(device, *left)
            given = q, new_k, new_v
            if packed:
                given = [torch.cat([x[b, :m] for b, m in enumerate(many)]) for x in given]
                named.update(cu_seqlens_q=numbers(device, 0, 2, 5), cu_seqlens_k_new=numbers(device, 0, 2, 5), max_seqlen_q=3)
            o, lse, *rest = fa.flash_attn_with_kvcache(given[0], *caches, *given[1:], cache_seqlens=numbers(device, *lengths), causal=True,
                                                       attention_chunk=chunk, return_softmax_lse=True, **named)  # fmt: skip
            self.near(o, torch.cat(want) if packed else torch.stack(want), torch.float32, what)
            self.assertEqual((lse.shape, [t.numel() for t in rest]), ((4, 5) if packed else (2, 4, 3), [0, 0]))
            whole = [pages[table.long()].flatten(1, 2) if paged else pages for pages in caches]
            self.assertTrue(torch.equal(whole[0][1, 9:12], new_k[1]) and torch.equal(whole[1][1, 12:], v[1, 12:]), what)

    def test_sequences_that_are_all_padding(self):
        """No key is seen, and rows are 0; new keys behind the padding are seen."""
        for device, chunk in itertools.product(DEVICES, (0, 7)):
            q, new_k, new_v = turned(device, len_q=3, len_k=4)
            k, v = (torch.randn(2, 32, 2, 16, device=device) for _ in range(2))
            options = {"cache_seqlens": numbers(device, 5, 9), "causal": True, "attention_chunk": chunk, "return_softmax_lse": True}
            o, lse, *_ = fa.flash_attn_with_kvcache(q, k, v, cache_leftpad=numbers(device, 7, 2), **options)
            self.assertTrue(torch.equal(o[0], torch.zeros_like(o[0])) and bool((lse[0] == -torch.inf).all()))
            self.near(o[1], self.of_sequence(q[1], k[1, 2:9], v[1, 2:9], causal=True, chunk=chunk), torch.float32)
            o, *_ = fa.flash_attn_with_kvcache(q, k, v, new_k, new_v, cache_leftpad=numbers(device, 7, 11), **options)
            for b, (first, end) in enumerate(((7, 9), (11, 13))):
                self.near(o[b], self.of_sequence(q[b], k[b, first:end], v[b, first:end], causal=True, chunk=chunk), torch.float32)

    def test_rotary_embeddings(self):
        from gpu_headroom.torch import flash_attn as two

        for device, causal, interleaved in itertools.product(DEVICES, (False, True), (False, True)):
            q, new_k, new_v = turned(device, len_q=3, len_k=3)
            k, v = (torch.randn(2, 32, 2, 16, device=device) for _ in range(2))
            angles = torch.rand(40, 4, device=device) * 6
            made = [
                of.flash_attn_with_kvcache(q, k.clone(), v.clone(), new_k, new_v, rotary_cos=angles.cos(), rotary_sin=angles.sin(),
                                           cache_seqlens=numbers(device, 20, 9), causal=causal, rotary_interleaved=interleaved)  # fmt: skip
                for of in (fa, two)
            ]
            self.near(*made, torch.float32)

    def test_shares_of_the_keys_are_combined(self):
        for device in DEVICES:
            q, k, v = turned(device)
            parts = [fa.flash_attn_func(q, k[:, at], v[:, at], return_attn_probs=True) for at in (slice(0, 7), slice(7, 40))]
            o, lse = fa.flash_attn_combine(torch.stack([o for o, _ in parts]), torch.stack([lse.transpose(1, 2) for _, lse in parts]))
            whole = ht.attention(q, k, v, layout="blhd", return_lse=True)
            self.near(o, whole[0], torch.float32)
            self.near(lse.transpose(1, 2), whole[1], torch.float32)
            shares = torch.stack([whole[0], torch.full_like(whole[0], torch.nan)])  # the second saw no key, and was never written
            none = torch.full_like(whole[1], -torch.inf)
            self.assertTrue(torch.equal(fa.flash_attn_combine(shares, torch.stack([whole[1], none]).transpose(2, 3))[0], whole[0]))

    def test_compiled(self):
        q, k, v = turned("cpu", len_k=33)
        call = lambda q, k, v: fa.flash_attn_func(q, k, v, causal=True, attention_chunk=8)  # noqa: E731
        self.near(torch.compile(call, fullgraph=True, backend="aot_eager")(q, k, v), call(q, k, v), torch.float32)

    def test_what_the_cache_refuses(self):
        q, (k, v), new = torch.randn(2, 1, 4, 8), torch.randn(2, 2, 12, 2, 8), torch.randn(2, 1, 2, 8)
        for error, words, named in (
            (ValueError, "k and v are given together", {"k": new}),
            (ValueError, "k and v need cache_seqlens", {"k": new, "v": new}),
            (ValueError, "rotary_cos, rotary_sin, k and v are given together", {"rotary_cos": torch.ones(12, 4)}),
            (ValueError, "q has 4 dimensions: a tensor .tokens, heads, head_dim.", {"cu_seqlens_q": numbers("cpu", 0, 1, 2)}),
            (RuntimeError, "a sequence of 13 keys, the cache has room for 12", {"k": new, "v": new, "cache_seqlens": 12}),
            (ValueError, r"cache_seqlens is torch.int32 \(3,\), it must be whole numbers \(2,\)", {"cache_seqlens": numbers("cpu", 1, 2, 3)}),
            (ValueError, r"cache_seqlens is torch.float32 \(2,\)", {"cache_seqlens": torch.ones(2), "cache_leftpad": numbers("cpu", 0, 0)}),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                fa.flash_attn_with_kvcache(q, k, v, **named)
        pages, new = torch.randn(2, 6, 4, 2, 8), torch.randn(3, 2, 8)
        paged = {"page_table": numbers("cpu", *range(6)).view(2, 3), "cache_seqlens": numbers("cpu", 10, 3)}
        with self.assertRaisesRegex(ValueError, "flash_attn_3.flash_attn_with_kvcache: rotary_cos has 11 positions, the pages of a sequence have room for 12"):
            fa.flash_attn_with_kvcache(q, *pages, new[:2, None], new[:2, None], rotary_cos=torch.ones(11, 4), rotary_sin=torch.ones(11, 4), **paged)
        with self.assertRaisesRegex(RuntimeError, "flash_attn_3.flash_attn_with_kvcache: a sequence of 13 keys, its pages have room for 12, as page_table"):
            fa.flash_attn_with_kvcache(q, *pages, new, new, cu_seqlens_k_new=numbers("cpu", 0, 3, 3), **paged)


if __name__ == "__main__":
    unittest.main()
