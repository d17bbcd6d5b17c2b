"""What gpu_headroom.torch has under flash_attn's names, and caches with lengths and pages, against torch's own attention in FP64."""

import itertools
import unittest

from torch_cases import DEVICES, Base, reference, tensors, torch

import gpu_headroom.torch as ht


class FlashAttnTest(Base):
    def test_varlen_as_flash_attn_has_it(self):
        for device in DEVICES:
            q, k, v = (x.detach()[0].transpose(0, 1).contiguous().requires_grad_() for x in tensors(device, len_q=40, len_k=40))
            ends = [0, 7, 7, 30, 40]
            cu = torch.tensor(ends, dtype=torch.int32, device=device)
            o, lse = ht.attention_varlen(q, k, v, cu, is_causal=True, return_lse=True)
            self.assertEqual((o.shape, lse.shape), (q.shape, (4, 40)))
            parts = [ht.attention(*[x[None, a:b] for x in (q, k, v)], layout="blhd", is_causal=True)[0] for a, b in zip(ends, ends[1:])]
            self.near(o, torch.cat(parts), torch.float32)
            self.near(ht.attention_varlen(q, k, v, cu, cu, is_causal=True), o, torch.float32)
            up = torch.randn_like(o)
            want = torch.autograd.grad(torch.cat(parts), [q, k, v], up)
            for g, w in zip(torch.autograd.grad(o, [q, k, v], up), want):
                self.near(g, w, torch.float32)

    def test_varlen_in_flash_attns_order(self):
        q, k, v = (torch.randn(30, 2, 8) for _ in range(3))
        cu = torch.tensor([0, 20, 30], dtype=torch.int32)
        want = ht.attention_varlen(q, k, v, cu, cu, is_causal=True)
        self.assertTrue(torch.equal(ht.attention_varlen(q, k, v, cu, cu, 20, torch.tensor(20), is_causal=True), want))
        self.assertTrue(torch.equal(ht.attention_varlen(q, k, v, cu, cu, max_seqlen_q=20, max_seqlen_k=20, is_causal=True), want))
        with self.assertRaisesRegex(TypeError, "after max_seqlen_k every argument is said by its name: .* is is_causal="):
            ht.attention_varlen(q, k, v, cu, cu, 20, 20, 0.0, None, True)
        with self.assertRaisesRegex(TypeError, "max_seqlen_q is a float: a whole number"):
            ht.attention_varlen(q, k, v, cu, cu, 0.5)

    def test_flash_attns_functions(self):
        from gpu_headroom.torch import flash_attn as fa

        for device in DEVICES:
            q, k, v = (x.transpose(1, 2) for x in tensors(device, len_q=33, len_k=40))
            turned = [x.transpose(1, 2) for x in (q, k, v)]
            for causal, size, mask in ((False, (-1, -1), {}), (True, (-1, -1), {"is_causal": True}), (True, (6, 0), {"window": 7}),
                                       (False, (6, 2), {"window": (7, 2)}), (True, (6, 9), {"window": 7}), (False, (-1, 3), {"window": (99, 3)}),
                                       (False, (4, -1), {"window": (5, 99)})):  # fmt: skip
                want, want_lse = reference(*turned, **mask, align="bottom-right")
                o, lse, probabilities = fa.flash_attn_func(q, k, v, 0.0, None, causal, size, return_attn_probs=True)
                self.near(o.transpose(1, 2), want, torch.float32, (causal, size))
                self.near(lse, want_lse, torch.float32)
                self.assertEqual((probabilities.shape, probabilities.dtype), ((0,), o.dtype))
            kv = torch.stack([k, v], 2)
            self.near(fa.flash_attn_kvpacked_func(q, kv, causal=True), fa.flash_attn_func(q, k, v, causal=True), torch.float32)
            qkv = torch.stack([k, k, v], 2)
            self.near(fa.flash_attn_qkvpacked_func(qkv, softcap=2.0), fa.flash_attn_func(k, k, v, softcap=2.0), torch.float32)
            cu = torch.tensor([0, 20, 40], dtype=torch.int32, device=device)
            want = torch.cat([fa.flash_attn_func(*[x[:1, a:b] for x in (k, k, v)], causal=True)[0] for a, b in ((0, 20), (20, 40))])
            self.near(fa.flash_attn_varlen_func(k[0], k[0], v[0], cu, cu, 20, 20, 0.0, None, True), want, torch.float32)
            self.near(fa.flash_attn_varlen_qkvpacked_func(qkv[0], cu, 20, causal=True), want, torch.float32)
            self.near(fa.flash_attn_varlen_kvpacked_func(k[0], kv[0], cu, cu, 20, 20, causal=True), want, torch.float32)
            for call in (lambda p: fa.flash_attn_func(q, k, v, p, causal=True), lambda p: fa.flash_attn_varlen_func(k[0], k[0], v[0], cu, cu, 20, 20, p)):  # noqa: B023
                torch.manual_seed(1)
                o = call(0.5)
                torch.manual_seed(1)
                self.assertTrue(torch.equal(o, call(0.5)))
                self.assertFalse(torch.equal(o, call(0.5)))

    def test_arguments_have_flash_attns_names_and_order(self):
        import inspect

        from gpu_headroom.torch import flash_attn as fa

        rest = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic", "return_attn_probs"]
        packed = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        for function, names in (
            (fa.flash_attn_func, ["q", "k", "v", *rest]),
            (fa.flash_attn_kvpacked_func, ["q", "kv", *rest]),
            (fa.flash_attn_qkvpacked_func, ["qkv", *rest]),
            (fa.flash_attn_varlen_func, ["q", "k", "v", *packed, *rest, "block_table"]),
            (fa.flash_attn_varlen_kvpacked_func, ["q", "kv", *packed, *rest]),
            (fa.flash_attn_varlen_qkvpacked_func, ["qkv", "cu_seqlens", "max_seqlen", *rest]),
        ):
            self.assertEqual(list(inspect.signature(function).parameters), names)
        q = torch.randn(1, 5, 2, 8)
        self.assertTrue(torch.equal(fa.flash_attn_func(q, q, q, softcap=-1.0), fa.flash_attn_func(q, q, q)), "at most 0 is none")
        with self.assertRaisesRegex(ValueError, "softcap is 'none': a number above 0"):
            fa.flash_attn_func(q, q, q, softcap="none")

    def test_what_dropout_dropped_is_told(self):
        """Probabilities before they are divided by their sum, negative where they were dropped: o comes of them again."""
        from gpu_headroom.torch import flash_attn as fa

        p = 0.25

        def again(numbers, q, k, v, size, softcap, slopes):
            """o [len_q, heads, head_dim] of one sequence: numbers [heads, len_q, len_k] say what is kept, FP64 the rest."""
            numbers, q, k, v = (x.double().cpu() for x in (numbers, q, k, v))
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[2] ** -0.5
            scores = softcap * torch.tanh(scores / softcap) if softcap else scores
            apart = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0] - torch.arange(k.shape[0])
            scores = scores if slopes is None else scores - slopes.double().cpu()[:, None, None] * apart.abs()
            seen = (apart <= size[0]) & (-apart <= size[1]) if size[0] >= 0 else torch.ones_like(apart, dtype=torch.bool)
            exact = torch.where(seen.any(-1)[:, None], scores.masked_fill(~seen, -torch.inf).softmax(-1), 0)
            for first in range(0, k.shape[0], 64):  # a block's numbers are counted from one number in each row
                one, other = numbers[..., first : first + 64].abs(), exact[..., first : first + 64]
                largest = other.amax(-1, keepdim=True)
                self.near(one * largest, other * one.amax(-1, keepdim=True), torch.float32)
                self.assertTrue(bool((one.amax(-1, keepdim=True)[largest > 0] > 0).all()))
            return torch.einsum("hqk,khd->qhd", exact * (numbers > 0) / (1 - p), v)

        for device, (size, softcap, alibi) in itertools.product(DEVICES, (((-1, -1), 0.0, False), ((30, 2), 0.0, True), ((-1, -1), 3.0, False))):
            q, k, v = (x.detach().transpose(1, 2) for x in tensors(device, len_q=70, len_k=150, dim=40))
            slopes = torch.rand(2, 4, device=device) if alibi else None
            o, _, S = fa.flash_attn_func(q, k, v, p, None, False, size, softcap, slopes, return_attn_probs=True)
            self.assertEqual((S.shape, S.dtype), ((2, 4, 70, 150), q.dtype))
            self.assertTrue(0.2 < float((S < 0).sum() / (S != 0).sum()) < 0.3)
            for b in (0, 1):
                self.near(o[b], again(S[b], q[b], k[b], v[b], size, softcap, slopes[b] if alibi else None), torch.float32)
            cu_q, cu_k = (torch.tensor(ends, dtype=torch.int32, device=device) for ends in ([0, 9, 9, 70], [0, 60, 70, 150]))
            slopes = torch.rand(3, 4, device=device) if alibi else None
            call = lambda q, k, v: fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 61, 80, p, None, False, size, softcap, slopes, return_attn_probs=True)  # noqa: B023, E731
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
            for run in (call, compiled):
                o, _, S = run(q[0], k[0], v[0])
                self.assertEqual(S.shape, (3, 4, 61, 80))
                for d in (0, 2):
                    a, b = slice(*cu_q[d : d + 2].tolist()), slice(*cu_k[d : d + 2].tolist())
                    mine = S[d, :, : a.stop - a.start, : b.stop - b.start]
                    self.near(o[a], again(mine, q[0, a], k[0, b], v[0, b], size, softcap, slopes[d] if alibi else None), torch.float32)

    def test_any_whole_number(self):
        import numpy as np

        from gpu_headroom.torch import flash_attn as fa

        for device, number in itertools.product(DEVICES, (torch.tensor, np.int64, np.uint8)):  # flash-attn's own tests give tensors of no dimension
            q, k, v = tensors(device, grad=False)
            self.assertTrue(torch.equal(ht.attention(q, k, v, window=number(7)), ht.attention(q, k, v, window=7)))
            self.assertTrue(torch.equal(ht.attention(q, k, v, window=(number(7), number(2))), ht.attention(q, k, v, window=(7, 2))))
            turned = [x.transpose(1, 2) for x in (q, k, v)]
            got = fa.flash_attn_func(*turned, window_size=(number(6), 2))
            self.assertTrue(torch.equal(got, fa.flash_attn_func(*turned, window_size=(6, 2))))
            cu = torch.tensor([0, 33], dtype=torch.int32, device=device)
            alike = [x[0, :33] for x in turned]
            got = fa.flash_attn_varlen_func(*alike, cu, cu, number(33), number(33), window_size=(number(6), 0))
            self.assertTrue(torch.equal(got, fa.flash_attn_varlen_func(*alike, cu, cu, 33, 33, window_size=(6, 0))))
            got = ht.attention_with_cache(q[:, :, :1], k, v, number(20).to(device) if number is torch.tensor else number(20))
            self.assertTrue(torch.equal(got, ht.attention_with_cache(q[:, :, :1], k, v, 20)))
            caches = [x.clone() for x in turned[1:]]
            fa.flash_attn_with_kvcache(turned[0][:, :1], *caches, *[x[:, :1] for x in turned[1:]], cache_seqlens=number(20))
            self.assertTrue(torch.equal(caches[0][:, 20], turned[1][:, 0]))
        changed = torch.tensor(7)
        ht.attention(q, k, v, window=changed)
        changed += 5
        self.assertTrue(torch.equal(ht.attention(q, k, v, window=changed), ht.attention(q, k, v, window=12)))
        for wrong in (torch.tensor(7.0), torch.tensor([7, 8]), torch.tensor(True), np.float32(7), "7"):
            with self.assertRaisesRegex(TypeError, "window is .*: the number of keys"):
                ht.attention(q, k, v, window=wrong)
        with self.assertRaisesRegex(TypeError, r"window_size is \(1.5, 0\): two whole numbers"):
            fa.flash_attn_func(*turned, window_size=(1.5, 0))

    def test_flash_attns_cache(self):
        from gpu_headroom.torch import flash_attn as fa

        for device in DEVICES:
            q, new_k, new_v = (x.detach().transpose(1, 2) for x in tensors(device, len_q=3, len_k=3))
            k, v = (torch.randn(2, 32, 2, 16, device=device) for _ in range(2))
            lengths = torch.tensor([20, 9], dtype=torch.int32, device=device)
            whole = [torch.cat([c[b, :n], x[b]]) for b, n in enumerate((20, 9)) for c, x in ((k, new_k), (v, new_v))]
            want = torch.cat([fa.flash_attn_func(q[b : b + 1], whole[2 * b][None], whole[2 * b + 1][None], causal=True) for b in (0, 1)])
            caches = k.clone(), v.clone()
            self.near(fa.flash_attn_with_kvcache(q, *caches, new_k, new_v, cache_seqlens=lengths, causal=True), want, torch.float32)
            self.assertTrue(torch.equal(caches[0][1, 9:12], new_k[1]) and torch.equal(caches[0][1, 12:], k[1, 12:]))
            table = torch.tensor([[5, 2, 7, 1], [0, 3, 4, 6]], dtype=torch.int32, device=device)
            pages = [torch.zeros(8, 8, 2, 16, device=device) for _ in range(2)]
            for paged, whole_cache in zip(pages, (k, v)):
                paged[table.long()] = whole_cache.unflatten(1, (4, 8))
            o, lse = fa.flash_attn_with_kvcache(q, *pages, new_k, new_v, cache_seqlens=lengths, block_table=table, causal=True,
                                                return_softmax_lse=True)  # fmt: skip
            self.near(o, want, torch.float32)
            self.assertEqual(lse.shape, (2, 4, 3))
            for full, more in (([33, 1], []), ([30, 1], [new_k, new_v])):
                full = torch.tensor(full, dtype=torch.int32, device=device)
                with self.assertRaisesRegex(RuntimeError, "a sequence of 33 keys, its pages have room for 32, as block_table says"):
                    fa.flash_attn_with_kvcache(q, *pages, *more, cache_seqlens=full, block_table=table)
            swapped = torch.tensor([1, 0], device=device)
            caches = k[swapped].clone(), v[swapped].clone()
            self.near(fa.flash_attn_with_kvcache(q, *caches, new_k, new_v, cache_seqlens=lengths, cache_batch_idx=swapped, causal=True), want,
                      torch.float32)  # fmt: skip
            with self.assertRaisesRegex(ValueError, "rotary_cos, rotary_sin, k and v are given together"):
                fa.flash_attn_with_kvcache(q, k, v, rotary_cos=torch.ones(2))
            with self.assertRaisesRegex(ValueError, "k and v need cache_seqlens"):
                fa.flash_attn_with_kvcache(q, k, v, new_k, new_v)

    def test_flash_attns_rotary_embeddings_and_left_padding(self):
        from gpu_headroom.torch import flash_attn as fa

        def turned(x, at, angles, interleaved):  # a pair of dimensions at a time
            y = x.clone()
            for i in range(angles.shape[1]):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + angles.shape[1])
                c, s = angles[at, i].cos(), angles[at, i].sin()
                y[..., a], y[..., b] = x[..., a] * c - x[..., b] * s, x[..., a] * s + x[..., b] * c
            return y

        for device, interleaved, causal in itertools.product(DEVICES, (False, True), (False, True)):
            q, new_k, new_v = (x.detach().transpose(1, 2) for x in tensors(device, len_q=3, len_k=3))
            k, v = (torch.randn(2, 32, 2, 16, device=device) for _ in range(2))
            lengths, pad = (torch.tensor(n, dtype=torch.int32, device=device) for n in ([20, 9], [4, 0]))
            angles = torch.rand(40, 4, device=device) * 6
            want, now = [], torch.arange(3, device=device)
            for b, n in enumerate((20, 9)):
                of_q = turned(q[b].transpose(0, 1), n + (now if causal else now * 0), angles, interleaved).transpose(0, 1)
                of_k = torch.cat([k[b, :n], turned(new_k[b].transpose(0, 1), n + now, angles, interleaved).transpose(0, 1)])
                want.append(fa.flash_attn_func(of_q[None], of_k[None, pad[b] :], torch.cat([v[b, :n], new_v[b]])[None, pad[b] :], causal=causal))
            caches = k.clone(), v.clone()
            o, lse = fa.flash_attn_with_kvcache(q, *caches, new_k, new_v, angles.cos(), angles.sin(), lengths, cache_leftpad=pad, causal=causal,
                                                rotary_interleaved=interleaved, return_softmax_lse=True)  # fmt: skip
            self.near(o, torch.cat(want), torch.float32, (interleaved, causal))
            self.assertEqual(lse.shape, (2, 4, 3))
            self.near(caches[0][1, 9:12, 1], turned(new_k[1, :, 1], 9 + now, angles, interleaved), torch.float32)
            with self.assertRaisesRegex(NotImplementedError, "cache_leftpad is not served with block_table"):
                fa.flash_attn_with_kvcache(q, k, v, cache_leftpad=pad, block_table=pad[:, None])

    def test_sequences_that_are_all_padding(self):
        """As flash-attn has it: no key is seen, and rows are 0."""
        from gpu_headroom.torch import flash_attn as fa

        for device, lengths in itertools.product(DEVICES, (torch.tensor([3, 9], dtype=torch.int32), 6, None)):
            q, (k, v) = torch.randn(2, 2, 4, 8, device=device), torch.randn(2, 2, 12, 2, 8, device=device)
            lengths = lengths.to(device) if isinstance(lengths, torch.Tensor) else lengths
            pad = torch.tensor([13, 2], dtype=torch.int32, device=device)
            o, lse = fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, cache_leftpad=pad, causal=True, return_softmax_lse=True)
            end = 12 if lengths is None else lengths if isinstance(lengths, int) else 9
            self.assertTrue(torch.equal(o[0], torch.zeros_like(o[0])) and bool((lse[0] == -torch.inf).all()))
            self.near(o[1:], fa.flash_attn_func(q[1:], k[1:, 2:end], v[1:, 2:end], causal=True), torch.float32)

    def test_positions_behind_the_rotary_embeddings(self):
        """More queries than new keys: a card must not stop for them, a CPU says it."""
        from gpu_headroom.torch import flash_attn as fa

        for device in DEVICES:
            q, (k, v), new = torch.randn(1, 4, 2, 8, device=device), torch.randn(2, 1, 12, 2, 8, device=device), torch.randn(1, 1, 2, 8, device=device)
            angles = torch.ones(12, 4, device=device)
            call = lambda: fa.flash_attn_with_kvcache(q, k, v, new, new, angles, angles, 11, causal=True)  # noqa: B023, E731
            if device == "cpu":
                self.assertRaises(IndexError, call)
            else:
                self.assertTrue(bool(call().isfinite().all()))

    def test_what_flash_attns_cache_refuses(self):
        from gpu_headroom.torch import flash_attn as fa

        q, (k, v) = torch.randn(2, 1, 4, 8), torch.randn(2, 2, 12, 2, 8)
        new, table = torch.randn(2, 1, 2, 8), torch.tensor([[1], [0]], dtype=torch.int32)
        numbers = lambda *n: torch.tensor(n, dtype=torch.int32)  # noqa: E731
        angles, before = torch.ones(11, 4), k.clone()
        for error, words, named in (
            (RuntimeError, "a sequence of 13 keys, the cache has room for 12", {"k": new, "v": new, "cache_seqlens": 12}),
            (RuntimeError, "a sequence of 13 keys, the cache has room for 12", {"k": new, "v": new, "cache_seqlens": numbers(3, 12)}),
            (RuntimeError, "a sequence of 13 keys, its pages have room", {"cache_seqlens": 13, "block_table": table}),
            (RuntimeError, "a sequence of -1 keys: at least 0", {"k": new, "v": new, "cache_seqlens": numbers(-1, 3)}),
            (NotImplementedError, "cache_batch_idx is not served with block_table", {"block_table": table, "cache_batch_idx": numbers(1, 0)}),
            (ValueError, "rotary_cos has 11 positions, the cache has room for 12",
             {"k": new, "v": new, "cache_seqlens": 3, "rotary_cos": angles, "rotary_sin": angles}),
            (TypeError, r"cache_seqlens is \[3, 4\]: a tensor of whole numbers, or one number", {"cache_seqlens": [3, 4]}),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                fa.flash_attn_with_kvcache(q, k, v, **named)
            self.assertTrue(torch.equal(k, before), "nothing was written")

    def test_compiled_once_for_every_length(self):
        """A length that is a number grows with each step of decoding."""
        from gpu_headroom.torch import flash_attn as fa

        q, (k, v), new = torch.randn(2, 1, 4, 8), torch.randn(2, 2, 12, 2, 8), torch.randn(2, 1, 2, 8)
        of_documents = torch.tensor([0, 1, 2], dtype=torch.int32)
        calls = {
            "flash_attn_with_kvcache": lambda n: fa.flash_attn_with_kvcache(q, k.clone(), v.clone(), new, new, cache_seqlens=n, causal=True),
            "attention_with_cache": lambda n: ht.attention_with_cache(q, k, v, n, layout="blhd"),
            "flash_attn_varlen_func": lambda n: fa.flash_attn_varlen_func(q[:, 0], new[:, 0], new[:, 0], of_documents, of_documents, n, n),
        }
        for name, call in calls.items():
            compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
            with self.subTest(name), torch._dynamo.config.patch(error_on_recompile=True):
                for n in (3, 4, 7):
                    self.near(compiled(n), call(n), torch.float32)

    def test_lengths_of_pages_are_waited_for_once(self):
        """Reading one number of a card waits for it, and a layer of decoding takes about as long."""
        from gpu_headroom.torch import flash_attn as fa

        q, (k, v) = torch.randn(2, 1, 4, 8), torch.randn(2, 2, 12, 2, 8)
        table, lengths = torch.tensor([[1], [0]], dtype=torch.int32), torch.tensor([3, 12], dtype=torch.int32)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, block_table=table)
        self.assertEqual([e.key for e in seen.key_averages() if e.key == "aten::item"], [])

    def test_flash_attns_cache_keeps_nothing_for_gradients(self):
        from gpu_headroom.torch import flash_attn as fa

        q, new = torch.randn(2, 1, 4, 8, requires_grad=True), torch.randn(2, 1, 2, 8, requires_grad=True)
        k, v = torch.randn(2, 2, 12, 2, 8)
        o = fa.flash_attn_with_kvcache(q, k, v, new, new, cache_seqlens=3, causal=True)
        self.assertEqual((o.requires_grad, k.requires_grad, torch.equal(k[:, 3:4], new)), (False, False, True))

    def test_flash_attns_documents_in_pages(self):
        from gpu_headroom.torch import flash_attn as fa

        for device, causal in itertools.product(DEVICES, (False, True)):
            q, k, v = (x[:1].transpose(1, 2) for x in tensors(device, len_q=33, len_k=40))
            q, k, v = q[0], k[0], v[0]
            cu_q, cu_k = (torch.tensor(n, dtype=torch.int32, device=device) for n in ([0, 20, 20, 33], [0, 17, 25, 40]))
            table = torch.tensor([[5, 2, 7], [0, 3, 4], [6, 1, 8]], dtype=torch.int32, device=device)
            pages = [torch.full((9, 8, *x.shape[1:]), torch.nan, device=device) for x in (k, v)]
            for paged, whole in zip(pages, (k, v)):
                for b, (begin, end) in enumerate(((0, 17), (17, 25), (25, 40))):
                    for at in range(end - begin):
                        paged[table[b, at // 8], at % 8] = whole[begin + at].detach()
            want, want_lse, _ = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 20, 17, causal=causal, return_attn_probs=True)
            got, lse, _ = fa.flash_attn_varlen_func(q, *pages, cu_q, cu_k, 20, 17, causal=causal, block_table=table, return_attn_probs=True)
            self.near(got, want, torch.float32, causal)
            self.near(lse, want_lse, torch.float32, causal)

    def test_a_cache_with_lengths_and_pages(self):
        from gpu_headroom.torch import flash_attn as fa

        for device, new, layout in itertools.product(DEVICES, (1, 3), ("bhld", "blhd")):
            q, k, v = tensors(device, batch=2, len_q=new, grad=False)
            lengths = [29, 17]
            alone = [ht.attention(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], is_causal=True, align="bottom-right")
                     for b, n in enumerate(lengths)]  # fmt: skip
            want = torch.cat(alone)
            turn = (lambda x: x.transpose(1, 2)) if layout == "blhd" else (lambda x: x)
            said = torch.tensor(lengths, device=device)
            self.near(turn(ht.attention_with_cache(turn(q), turn(k), turn(v), said, layout=layout)), want, torch.float32)
            table = torch.tensor([[7, 2, 9, 4, 0], [1, 3, 5, -1, -1]], dtype=torch.int32, device=device)
            pages = [torch.zeros(10, 2, 8, 16, device=device) for _ in range(2)]
            for paged, whole in zip(pages, (k, v)):
                for b, n in enumerate((5, 3)):
                    for at in range(n):
                        paged[table[b, at]] = whole[b, :, at * 8 : at * 8 + 8]
            got, lse = ht.attention_with_cache(turn(q), *map(turn, pages), said, table, layout=layout, return_lse=True)
            self.near(turn(got), want, torch.float32)
            self.assertEqual(lse.shape, (2, 4, new))
            compiled = torch.compile(lambda *x: ht.attention_with_cache(*x, layout=layout), fullgraph=True, backend="aot_eager")  # noqa: B023
            self.near(turn(compiled(turn(q), *map(turn, pages), said, table)), want, torch.float32)
            decode = lambda q, k, v, *x: fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=x[0], block_table=x[1], causal=True)  # noqa: E731
            once = [t.transpose(1, 2) for t in (q, *pages)]
            whole = torch.compile(decode, fullgraph=True, backend="aot_eager")(*once, said.int(), table)
            self.near(whole.transpose(1, 2), want, torch.float32)
            several = torch.func.vmap(lambda n: ht.attention_with_cache(turn(q), turn(k), turn(v), n, layout=layout))(torch.stack([said, said - 3]))
            for got, n in zip(several, (said, said - 3)):
                self.near(got, ht.attention_with_cache(turn(q), turn(k), turn(v), n, layout=layout), torch.float32)
            self.near(turn(ht.attention_with_cache(turn(q), turn(k), turn(v), layout=layout)),
                      ht.attention(q, k, v, is_causal=True, align="bottom-right"), torch.float32)  # fmt: skip
            q.requires_grad_()
            got = ht.attention_with_cache(turn(q), *map(turn, pages), said, table, layout=layout)
            with self.assertRaisesRegex(RuntimeError, "a cache in pages has no gradients"):
                got.sum().backward()
            ht.attention_with_cache(turn(q), turn(k), turn(v), said, layout=layout).sum().backward()  # without pages it has


if __name__ == "__main__":
    unittest.main()
