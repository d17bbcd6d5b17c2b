"""gpu_headroom.torch against torch's own attention in FP64. Exit code 77 says: skipped, and why. Runs on the CPU, and on a GPU where there is one."""

import itertools
import os
import signal
import threading
import unittest
import warnings

from torch_cases import DEVICES, FUSED, TOLERANCE, Base, packed, reference, tensors, torch

import gpu_headroom as hr
import gpu_headroom.torch as ht
from gpu_headroom.torch import checks, functions, sdpa


class AttentionTest(Base):
    def test_forward_and_backward(self):
        masks = [{}, {"is_causal": True}, {"is_causal": True, "align": "bottom-right"}, {"window": 7}, {"window": 7, "align": "bottom-right"},
                 {"window": (5, 3)}, {"softcap": 2.0, "is_causal": True}]
        for device, dtype, mask, layout in itertools.product(DEVICES, TOLERANCE, masks, ("bhld", "blhd")):
            with self.subTest(device=device, dtype=dtype, layout=layout, **mask):
                q, k, v = tensors(device, dtype)
                turned = [x.transpose(1, 2) for x in (q, k, v)] if layout == "blhd" else (q, k, v)
                o, lse = ht.attention(*turned, layout=layout, return_lse=True, **mask)
                o = o.transpose(1, 2) if layout == "blhd" else o
                exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
                want_o, want_lse = reference(*exact, **mask)
                self.near(o, want_o, dtype, "o")
                self.near(lse, want_lse, dtype, "lse")
                up = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
                up_lse = torch.randn(lse.shape, generator=torch.Generator().manual_seed(2)).to(device)
                got = torch.autograd.grad([o, lse], [q, k, v], [up, up_lse])
                want = torch.autograd.grad([want_o, want_lse], exact, [up.double().cpu(), up_lse.double().cpu()])
                for g, w, name in zip(got, want, ("dq", "dk", "dv")):
                    self.near(g, w, dtype, name)

    def test_it_is_torchs_own_function(self):
        for device in DEVICES:
            for len_q, len_k in ((33, 33), (33, 40), (40, 33)):
                q, k, v = tensors(device, heads=2, len_q=len_q, len_k=len_k)
                for causal in (False, True):
                    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    self.near(ht.attention(q, k, v, is_causal=causal), want, torch.float32)

    def test_gradients_that_are_one_number_repeated(self):
        for device in DEVICES:
            q, k, v = tensors(device)
            o = ht.attention(q, k, v)
            want = torch.autograd.grad(o, [q, k, v], torch.ones_like(o), retain_graph=True)
            for g, w in zip(torch.autograd.grad(o.sum(), [q, k, v]), want):
                self.assertTrue(torch.equal(g, w))

    def test_in_fp8(self):
        hopper = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
        for device in ["cpu", "cuda"] if hopper else ["cpu"]:
            q, k, v = tensors(device, torch.bfloat16, dim=64, grad=False)
            want, want_lse = reference(q, k, v, is_causal=True)
            for _ in range(2):  # the second call finds the first one's
                o, lse = ht.attention(q, k, v, is_causal=True, return_lse=True, quantise="fp8")
                self.assertEqual(o.dtype, torch.bfloat16)
                off = (o.double().cpu() - want).square().mean().sqrt() / want.square().mean().sqrt()
                self.assertLess(off, 0.08)  # E4M3 has 3 bits after the first
                self.assertGreater(off, 0.01, "these were not 8 bits")
                self.assertLess((lse.double().cpu() - want_lse).abs().max(), 0.5)
            compiled = torch.compile(lambda *x: ht.attention(*x, is_causal=True, quantise="fp8"), fullgraph=True, backend="eager")
            self.assertTrue(torch.equal(compiled(q, k, v), o))
            self.assertIn("fp8: chosen", ht.explain(q, k, v, quantise="fp8"))
            needs = q.clone().requires_grad_()
            with self.assertRaisesRegex(ValueError, r"no gradients, and a tensor requires one: call it under torch.no_grad\(\)"):
                ht.attention(needs, k, v, is_causal=True, quantise="fp8")
            with torch.no_grad():
                self.assertTrue(torch.equal(ht.attention(needs, k, v, is_causal=True, quantise="fp8"), o))
            with self.assertRaisesRegex(hr.Error, "attention in fp8 has no backward|which has no backward"):
                torch.ops.headroom.attention_backward(o, None, q, k, v, o, lse, None, None, None, None, *checks.options_of(
                    True, None, None, "top-left", "bhld", None, False, None, quantise="fp8"))  # fmt: skip
        with self.assertRaisesRegex(TypeError, "quantise='fp8' takes bfloat16 and gives bfloat16, and q is float32"):
            ht.attention(*tensors(grad=False), quantise="fp8")
        with self.assertRaisesRegex(ValueError, "quantise is 'int8': 'fp8', or None for nothing"):
            ht.attention(*tensors(dtype=torch.bfloat16, grad=False), quantise="int8")

    def test_any_strides(self):
        for device, dtype in itertools.product(DEVICES, (torch.float32, torch.bfloat16)):
            q, k, v = tensors(device, dtype, grad=False)
            want = ht.attention(q, k, v)
            wide = torch.zeros(2, 4, 66, 16, device=device, dtype=dtype)
            wide[:, :, ::2] = q
            self.assertTrue(torch.equal(ht.attention(wide[:, :, ::2], k, v), want))
            self.assertTrue(torch.equal(ht.attention(q.transpose(2, 3).contiguous().transpose(2, 3), k, v), want))
            packed = torch.cat([q.transpose(1, 2).flatten(2), q.transpose(1, 2).flatten(2)[..., :3]], -1)  # rows off every boundary
            self.assertTrue(torch.equal(ht.attention(packed[..., :64].unflatten(-1, (4, 16)).transpose(1, 2), k, v), want))
            one = k[:, :1].expand(2, 4, 40, 16)
            self.assertTrue(torch.equal(ht.attention(q, one, one), ht.attention(q, one.contiguous(), one.contiguous())))

    def test_only_lse_or_only_some_gradients(self):
        q, k, v = tensors()
        _, lse = ht.attention(q, k, v, return_lse=True)
        exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
        for g, w in zip(torch.autograd.grad(lse.sum(), [q, k]), torch.autograd.grad(reference(*exact)[1].sum(), exact[:2])):
            self.near(g, w, torch.float32)
        q, k, v = tensors(grad=False)
        self.assertFalse(ht.attention(q, k, v).requires_grad)
        v.requires_grad_()
        ht.attention(q, k, v).sum().backward()
        self.assertIsNotNone(v.grad)

    def test_scales(self):
        q, k, v = tensors(grad=False)
        self.near(ht.attention(q, k, v, scale=0.3), reference(q, k, v, scale=0.3)[0], torch.float32)
        self.near(ht.attention(q, k, v, scale=0.0), reference(q, k, v, scale=0.0)[0], torch.float32)

    def test_edges_of_shapes(self):
        for device in DEVICES:
            for len_q, len_k in ((1, 1), (1, 40), (0, 5), (5, 0), (300, 7)):
                q, k, v = tensors(device, len_q=len_q, len_k=len_k)
                o, lse = ht.attention(q, k, v, is_causal=True, align="bottom-right", return_lse=True)
                want_o, want_lse = reference(q, k, v, is_causal=True, align="bottom-right") if len_k else (torch.zeros_like(o), None)
                self.near(o, want_o, torch.float32)
                if want_lse is not None:
                    self.near(lse, want_lse, torch.float32)
                o.sum().backward()
                self.assertTrue(torch.isfinite(q.grad).all())

    def test_values_of_another_dimension(self):
        for device in DEVICES:
            q, k, v = tensors(device, dim=24)
            v = v[..., :16].detach().requires_grad_()
            exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
            o, want = ht.attention(q, k, v, is_causal=True), reference(*exact, is_causal=True)[0]
            self.near(o, want, torch.float32)
            for g, w in zip(torch.autograd.grad(o.sum(), [q, k, v]), torch.autograd.grad(want.sum(), exact)):
                self.near(g, w, torch.float32)

    def test_sinks(self):
        for device, dtype, layout in itertools.product(DEVICES, (torch.float32, torch.bfloat16), ("bhld", "blhd")):
            q, k, v = tensors(device, dtype)
            sink = torch.tensor([0.5, -2, 3, 0], device=device, dtype=dtype, requires_grad=True)
            exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v, sink)]
            turned = [x.transpose(1, 2) for x in (q, k, v)] if layout == "blhd" else (q, k, v)
            for _ in range(2):  # known the second time
                o, lse = ht.attention(*turned, layout=layout, is_causal=True, softcap=3.0, sink=sink, return_lse=True)
            o = o.transpose(1, 2) if layout == "blhd" else o
            want_o, want_lse = reference(*exact[:3], is_causal=True, softcap=3.0, sink=exact[3])
            self.near(o, want_o, dtype)
            self.near(lse, want_lse, dtype)
            up = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
            got = torch.autograd.grad([o, lse.sum()], [q, k, v, sink], [up, None])
            want = torch.autograd.grad([want_o, want_lse.sum()], exact, [up.double().cpu(), None])
            for g, w in zip(got, want):
                self.assertEqual(g.dtype, dtype)
                self.near(g, w, dtype)
        q, k, v = tensors(grad=False)
        sink.grad = None
        ht.attention(q, k, v, sink=torch.zeros(4, requires_grad=True)).sum().backward()  # only the sink wants one

    def test_caps_under_large_gradients(self):
        """A score that a row does not see has no gradient, however large dO is."""
        for device, dim, mask in itertools.product(DEVICES, (16, 64, 128, 256), ({"is_causal": True}, {"window": (40, 0), "align": "bottom-right"})):
            q, k, v = tensors(device, torch.bfloat16, len_q=150, len_k=150, dim=dim)
            o = ht.attention(q, k, v, softcap=5.0, **mask)
            up = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o) * 2**14
            twins = [t.detach().double().cpu().requires_grad_() for t in (q, k, v)]
            want = torch.autograd.grad(reference(*twins, softcap=5.0, **mask)[0], twins, up.double().cpu())
            for got, w in zip(torch.autograd.grad(o, (q, k, v), up), want):
                self.near(got / 2**14, w / 2**14, torch.bfloat16, (device, dim, mask))

    def test_documents(self):
        cu_q, cu_k = [[0, 10, 10, 33], [0, 1, 20, 30]], [[0, 12, 15, 40], [0, 0, 25, 39]]
        for device, dtype, mask in itertools.product(DEVICES, (torch.float32, torch.bfloat16), ({}, {"is_causal": True}, {"window": (5, 2)})):
            q, k, v = tensors(device, dtype)
            sink = torch.randn(4, device=device, requires_grad=True)
            lists = [torch.tensor(x, dtype=torch.int32, device=device) for x in (cu_q, cu_k)]
            o = ht.attention(q, k, v, align="bottom-right", cu_seqlens_q=lists[0], cu_seqlens_k=lists[1], sink=sink, **mask)
            exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v, sink)]
            want = reference(*exact[:3], sink=exact[3], seen=packed(cu_q, cu_k, 33, 40, **mask))[0]
            self.near(o, want, dtype)
            up = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)
            for g, w in zip(torch.autograd.grad(o, [q, k, v, sink], up), torch.autograd.grad(want, exact, up.double().cpu())):
                self.near(g, w, dtype)

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
                o, lse, none = fa.flash_attn_func(q, k, v, 0.0, None, causal, size, return_attn_probs=True)
                self.near(o.transpose(1, 2), want, torch.float32, (causal, size))
                self.near(lse, want_lse, torch.float32)
                self.assertIsNone(none)
            kv = torch.stack([k, v], 2)
            self.near(fa.flash_attn_kvpacked_func(q, kv, causal=True), fa.flash_attn_func(q, k, v, causal=True), torch.float32)
            qkv = torch.stack([k, k, v], 2)
            self.near(fa.flash_attn_qkvpacked_func(qkv, softcap=2.0), fa.flash_attn_func(k, k, v, softcap=2.0), torch.float32)
            cu = torch.tensor([0, 20, 40], dtype=torch.int32, device=device)
            want = torch.cat([fa.flash_attn_func(*[x[:1, a:b] for x in (k, k, v)], causal=True)[0] for a, b in ((0, 20), (20, 40))])
            self.near(fa.flash_attn_varlen_func(k[0], k[0], v[0], cu, cu, 20, 20, 0.0, None, True), want, torch.float32)
            self.near(fa.flash_attn_varlen_qkvpacked_func(qkv[0], cu, 20, causal=True), want, torch.float32)
            self.near(fa.flash_attn_varlen_kvpacked_func(k[0], kv[0], cu, cu, 20, 20, causal=True), want, torch.float32)
            with self.assertRaisesRegex(NotImplementedError, "flash_attn_func: alibi_slopes is not served"):
                fa.flash_attn_func(q, k, v, alibi_slopes=torch.ones(4))
            for call in (lambda p: fa.flash_attn_func(q, k, v, p, causal=True), lambda p: fa.flash_attn_varlen_func(k[0], k[0], v[0], cu, cu, 20, 20, p)):  # noqa: B023
                torch.manual_seed(1)
                o = call(0.5)
                torch.manual_seed(1)
                self.assertTrue(torch.equal(o, call(0.5)))
                self.assertFalse(torch.equal(o, call(0.5)))

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
                with self.assertRaisesRegex(RuntimeError, "a sequence of 33 keys, the pages of block_table have room for 32"):
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
            self.near(turn(ht.attention_with_cache(turn(q), turn(k), turn(v), layout=layout)),
                      ht.attention(q, k, v, is_causal=True, align="bottom-right"), torch.float32)  # fmt: skip
            q.requires_grad_()
            got = ht.attention_with_cache(turn(q), *map(turn, pages), said, table, layout=layout)
            with self.assertRaisesRegex(RuntimeError, "a cache in pages has no gradients"):
                got.sum().backward()
            ht.attention_with_cache(turn(q), turn(k), turn(v), said, layout=layout).sum().backward()  # without pages it has

    def test_backward_by_hand(self):
        for device, layout in itertools.product(DEVICES, ("bhld", "blhd")):
            q, k, v = (x.detach() for x in tensors(device))
            q, k, v = ((x.transpose(1, 2) if layout == "blhd" else x).requires_grad_() for x in (q, k, v))
            sink = torch.randn(4, device=device, requires_grad=True)
            with_ = dict(is_causal=True, align="bottom-right", layout=layout, softcap=3.0, sink=sink)
            o, lse = ht.attention(q, k, v, return_lse=True, **with_)
            up, up_lse = torch.randn_like(o), torch.randn_like(lse)
            want = torch.autograd.grad([o, lse], [q, k, v, sink], [up, up_lse])
            for g, w in zip(ht.attention_backward(up, q, k, v, o, lse, dlse=up_lse, **with_), want):
                self.assertTrue(torch.equal(g, w))
        self.assertEqual(len(ht.attention_backward(up, q, k, v, o, lse, layout=layout)), 3)
        for words, bad in (("d_o is torch.float64", (up.double(), q, k, v, o, lse)), (r"lse is torch.float32 \(2, 4\)", (up, q, k, v, o, lse[..., 0])),
                           ("o is on meta|o is torch.float32 .* on meta", (up, q, k, v, o.to("meta"), lse))):  # fmt: skip
            with self.assertRaisesRegex(ValueError, words):
                ht.attention_backward(*bad, layout=layout)
        with self.assertRaisesRegex(TypeError, "o is a NoneType"):
            ht.attention_backward(up, q, k, v, None, lse, layout=layout)

    def test_what_goes_with_it_and_is_wrong(self):
        q, k, v = tensors(grad=False)
        cu = torch.tensor([[0, 33], [0, 20]], dtype=torch.int32)

        def refuse(kind, words, call=ht.attention, *args, **options):
            with self.assertRaisesRegex(kind, words):
                call(*(args or (q, k, v)), **options)

        refuse(TypeError, "sink is a list", sink=[1, 2, 3, 4])
        refuse(TypeError, "sink is torch.int64", sink=torch.arange(4))
        refuse(ValueError, r"sink is \(3,\), it must be \(4,\)", sink=torch.zeros(3))
        refuse(ValueError, "sink is on meta", sink=torch.zeros(4, device="meta"))
        refuse(TypeError, "cu_seqlens_q is a list", cu_seqlens_q=[0, 33])
        refuse(TypeError, r"cu_seqlens_q is torch.int64, .* pass cu_seqlens_q.int\(\)", cu_seqlens_q=cu.long())
        refuse(ValueError, "cu_seqlens_q is on meta", cu_seqlens_q=cu.to("meta"))
        refuse(ValueError, r"cu_seqlens_q is \(2,\), it must be \(2, at least 2\)", cu_seqlens_q=cu[0])
        refuse(ValueError, "they must agree", cu_seqlens_q=cu, cu_seqlens_k=torch.zeros(2, 3, dtype=torch.int32))
        refuse(ValueError, "cu_seqlens_k is given without", cu_seqlens_k=cu)
        refuse(hr.Error, r"cu_seqlens_q\[0\] ends at 34, and there are 33", cu_seqlens_q=cu + torch.tensor([[0, 1], [0, 0]], dtype=torch.int32))
        refuse(hr.Error, r"cu_seqlens_q\[0\] begins with 1", cu_seqlens_q=cu + 1)
        refuse(ValueError, "q has 4 dimensions: 3 are served", ht.attention_varlen, q, k, v, cu)
        refuse(TypeError, "cu_seqlens_q is None", ht.attention_varlen, q[0], k[0], v[0], None)
        refuse(ValueError, r"cu_seqlens_q is \(2, 2\), it must be \(1, at least 2\)", ht.attention_varlen, *[x[0].transpose(0, 1) for x in (q, k, v)], cu)
        cache = ht.attention_with_cache
        refuse(ValueError, "lengths is 41, the cache has room for 40", cache, q, k, v, 41)
        refuse(ValueError, "lengths is torch.float32", cache, q, k, v, torch.ones(2))
        refuse(ValueError, r"lengths is torch.int64 \(3,\)", cache, q, k, v, torch.ones(3, dtype=torch.int64))
        refuse(TypeError, "lengths is a list", cache, q, k, v, [3, 4])
        refuse(ValueError, r"lengths\[0\] is 41, the cache has room for 40", cache, q, k, v, torch.tensor([41, 2]))
        refuse(ValueError, r"lengths\[1\] is -2, the cache has room for 40", cache, q, k, v, torch.tensor([4, -2]))
        refuse(ValueError, "attention_with_cache: k_cache is .* and v_cache is .*: all but head_dim must agree", cache, q, k, v[:, :, :9])
        refuse(TypeError, "attention_with_cache: v_cache is a list", cache, q, k, [1])
        refuse(TypeError, "pages is torch.int64", cache, q, k, v, 4, torch.zeros(2, 3, dtype=torch.int64))
        refuse(ValueError, r"pages is \(1, 3\)", cache, q, k, v, 4, torch.zeros(1, 3, dtype=torch.int32))
        refuse(hr.Error, r"pages\[0\]\[0\] is 7, there are pages 0 to 1", cache, q, k, v, 4, torch.full((2, 3), 7, dtype=torch.int32))
        refuse(ValueError, "there are no pages", cache, q, k[:0], v[:0], 4, torch.zeros(2, 3, dtype=torch.int32))

    def test_autocast(self):
        q, k, v = tensors()
        with torch.autocast("cpu", torch.bfloat16):
            o = ht.attention(q, k, v)
            self.assertEqual(o.dtype, torch.bfloat16)
        o.sum().backward()
        self.assertEqual(q.grad.dtype, torch.float32)

    def test_deterministic(self):
        for device in DEVICES:
            q, k, v = tensors(device, torch.float32 if device == "cpu" else torch.bfloat16, len_q=256, len_k=256, dim=64)
            runs = [torch.autograd.grad(ht.attention(q, k, v, deterministic=True).sum(), [q, k, v]) for _ in range(3)]
            for run in runs[1:]:
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(run, runs[0])))

    def test_no_second_derivatives(self):
        q, k, v = tensors()
        (g,) = torch.autograd.grad(ht.attention(q, k, v).square().sum(), [q], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            g.sum().backward()

    def test_transforms_of_torch_func(self):
        from torch.func import grad, vmap

        q, k, v = (x.detach() for x in tensors())
        loss = lambda q, k, v: ht.attention(q, k, v, is_causal=True).square().sum()  # noqa: E731
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        want = torch.autograd.grad(loss(*leaves), leaves)
        for g, w in zip(grad(loss, (0, 1, 2))(q, k, v), want):
            self.assertTrue(torch.equal(g, w))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is a loop
            for g, w in zip(vmap(grad(loss, (0, 1, 2)))(q[:, None], k[:, None], v[:, None]), want):  # a gradient of each sample
                self.near(g[:, 0], w, torch.float32)
            many = vmap(lambda q: ht.attention(q, k, v))(torch.stack([q, 2 * q]))
        self.near(many[1], ht.attention(2 * q, k, v), torch.float32)
        with self.assertRaisesRegex(NotImplementedError, "no forward-mode derivatives of attention: use those of backward"):  # and no zeros
            torch.func.jvp(lambda q: ht.attention(q, k, v), (q,), (q,))
        with ht.replace_sdpa() as seen, torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH, *FUSED]):
            try:
                torch.func.jvp(lambda q: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True), (q,), (q,))
            except (RuntimeError, NotImplementedError):
                pass  # torch's own kernel may have none either
        self.assertIn("left to torch: 1 calls: gpu_headroom.torch has no forward-mode", seen.explain())
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, q)
            with self.assertRaises(RuntimeError):
                ht.attention(dual, k, v)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            grad(lambda q: grad(loss)(q, k, v).sum())(q)

    def test_meta_tensors_have_shapes(self):
        q, k, v = (x.detach().to("meta").requires_grad_() for x in tensors())
        for layout in ("bhld", "blhd"):
            given = [x.transpose(1, 2) for x in (q, k, v)] if layout == "blhd" else [q, k, v]
            o, lse = ht.attention(*given, is_causal=True, layout=layout, return_lse=True)
            self.assertEqual((o.shape, o.device.type, lse.shape), (given[0].shape, "meta", (2, 4, 33)))
            self.assertEqual([g.shape for g in torch.autograd.grad(o.sum(), [q, k, v])], [q.shape, k.shape, v.shape])

    def test_numbers_of_threads(self):
        q, k, v = tensors(grad=False)
        want, before = ht.attention(q, k, v), torch.get_num_threads()
        for n in (1, 3):
            torch.set_num_threads(n)
            self.assertTrue(torch.equal(ht.attention(q, k, v), want))
        torch.set_num_threads(before)

    def test_many_threads_at_once(self):
        q, k, v = tensors(len_q=128, len_k=128, grad=False)
        want, wrong = ht.attention(q, k, v, is_causal=True), []

        def work():
            for _ in range(20):
                if not torch.equal(ht.attention(q, k, v, is_causal=True), want):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_a_forked_child_goes_on(self):
        q, k, v = tensors(grad=False)
        want = ht.attention(q, k, v)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this process has threads is the point
            child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if torch.equal(ht.attention(q, k, v), want) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_what_is_refused_says_why(self):
        q, k, v = tensors(grad=False)

        def refuse(kind, words, *args, **options):
            with self.assertRaisesRegex(kind, words):
                ht.attention(*(args or (q, k, v)), **options)

        refuse(TypeError, "q is a ndarray", q.numpy(), k, v)
        refuse(TypeError, "float64", q.double(), k.double(), v.double())
        refuse(TypeError, "k is torch.float16, q is torch.float32", q, k.half(), v)
        refuse(ValueError, "3 dimensions", q[0], k, v)
        refuse(ValueError, "attn_mask", attn_mask=torch.ones(33, 40, dtype=torch.bool))
        refuse(ValueError, "attn_mask", attn_mask=True)
        for wrong in (1.0, 1, -0.1, 2.0, float("nan"), float("inf")):
            refuse(ValueError, "dropout_p is .*: served are 0 and what is above it and below 1", dropout_p=wrong)
        refuse(TypeError, "dropout_p is a bool: a number", dropout_p=True)
        refuse(TypeError, "dropout_p is a str: a number", dropout_p="0.1")
        refuse(TypeError, "seed is a int: an int64 tensor", dropout_p=0.1, seed=3)
        refuse(ValueError, "seed is torch.int32 .2,. on cpu, it must be torch.int64 .2,.", dropout_p=0.1, seed=torch.zeros(2, dtype=torch.int32))
        refuse(ValueError, "seed is given, and dropout_p is 0", seed=torch.zeros(2, dtype=torch.int64))
        refuse(ValueError, "all but head_dim", q, k, v[:, :, :8])
        refuse(ValueError, "softcap is -1", softcap=-1)
        refuse(ValueError, "softcap is '1'", softcap="1")
        refuse(ValueError, "batch and head_dim", q, k[:1], v[:1])
        refuse(ValueError, "cannot share", q, k[:, :0], v[:, :0])
        refuse(ValueError, "enable_gqa", enable_gqa=False)
        refuse(ValueError, "window and|is_causal and window", is_causal=True, window=4)
        refuse(ValueError, "window is 0", window=0)
        refuse(TypeError, "window is True", window=True)
        refuse(TypeError, "window is .4, 0, 1.", window=(4, 0, 1))
        refuse(TypeError, "window is .4, 0.:", window=[4, 0])
        refuse(TypeError, "deterministic is a str", deterministic="yes")
        refuse(TypeError, "tf32 is a str: True or False, or None", tf32="yes")
        refuse(TypeError, "scale is a Tensor", scale=torch.tensor(0.1))
        refuse(ValueError, "at least 0 after", window=(4, -1))
        refuse(TypeError, "is_causal is a str", is_causal="yes")
        refuse(ValueError, "layout 'bshd'", layout="bshd")
        refuse(ValueError, "align 'left'", align="left")
        refuse(TypeError, "scale is a str", scale="0.1")
        refuse(ValueError, "scale is nan", scale=float("nan"))
        refuse(ValueError, "head_dim is 300", *[torch.zeros(1, 1, 2, 300)] * 3)
        refuse(hr.Error, "flsh", variant="flsh")
        refuse(ValueError, "keeps", variant="plain")
        with self.assertRaisesRegex(TypeError, "requires gradients"):
            hr.attention_forward(*[x.transpose(1, 2).requires_grad_() for x in (q, k, v)])

    def test_checks_do_not_depend_on_what_was_asked_before(self):
        q = torch.randn(1, 2, 4, 8)
        for argument, good, bad in (("is_causal", True, 1), ("window", 4, 4.0), ("deterministic", True, 1)):
            ht.attention(q, q, q, **{argument: good})
            with self.assertRaisesRegex(TypeError, argument):
                ht.attention(q, q, q, **{argument: bad})
        with self.assertRaisesRegex(TypeError, "there is no mask here: say is_causal=True"):
            ht.attention(q, q, q, mask=True)
        nested = torch.nested.nested_tensor([torch.randn(2, 4, 8), torch.randn(2, 3, 8)])
        with self.assertRaisesRegex(ValueError, "nested"):
            ht.attention(nested, nested, nested)

    def test_a_misspelt_argument_is_told_the_right_one(self):
        q = torch.randn(1, 2, 4, 8)
        for function, name, words in (
            (ht.attention, "causal", "attention has no argument 'causal': say is_causal"), (ht.attention, "softmax_scale", "say scale"),
            (ht.attention, "is_casual", "say is_causal"), (ht.attention_varlen, "return_lsee", "attention_varlen has .*: say return_lse"),
            (ht.attention_with_cache, "cache_seqlens", "say lengths"), (ht.attention_with_cache, "block_table", "say pages"),
            (ht.explain, "causal", "explain has"), (ht.why_not, "causal", "why_not has"),
            (ht.attention_with_cache, "dropout", "there are q, k_cache, v_cache, lengths"),
            (ht.attention, "window_size", "say window, the number of keys"),
        ):  # fmt: skip
            with self.assertRaisesRegex(TypeError, words):
                function(q, q, q, **({"cu_seqlens_q": None} if function is ht.attention_varlen else {}), **{name: 1})
        for size, words in (((3, 0), r"say window=4, align='bottom-right'$"), ((3, 2), r"say window=\(4, 2\), align"), ((-1, 0), "say is_causal=True$"),
                            ((-1, -1), "say nothing: both sides are open$"), ((-1, 2), r"say window=\(2\*\*31, 2\)$")):  # fmt: skip
            with self.assertRaisesRegex(TypeError, words):
                ht.attention(q, q, q, window_size=size)
        with self.assertRaisesRegex(TypeError, "attention_varlen has no argument 'window_size': say window=4$"):
            ht.attention_varlen(q, q, q, None, window_size=(3, 0))
        self.assertEqual(ht.attention(q, q, q, window=(2**31, 2)).shape, q.shape)
        with self.assertRaisesRegex(TypeError, "attention_backward has no argument 'causal': say is_causal"):
            ht.attention_backward(q, q, q, q, q, q, causal=True)

    def test_torchs_word_for_fixed_bits(self):
        from unittest import mock

        asked = []

        def heard(*given, **named):
            asked.append(given[6])
            return checks.options_of(*given, **named)

        q = torch.randn(1, 2, 5, 8)
        try:
            for said in (False, True):
                torch.use_deterministic_algorithms(said)
                with mock.patch.object(functions, "options_of", heard), mock.patch.object(sdpa, "options_of", heard), ht.replace_sdpa():
                    ht.attention(q, q, q)
                    torch.nn.functional.scaled_dot_product_attention(q, q, q)
        finally:
            torch.use_deterministic_algorithms(False)
        self.assertEqual(asked, [False, False, True, True])

    def test_explain(self):
        q, k, v = tensors(grad=False)
        self.assertIn("flash: chosen", ht.explain(q, k, v, is_causal=True))
        self.assertIn("flash: chosen", ht.explain(q, k, v, dropout_p=0.5))
        self.assertIn("left to torch: dropout_p", ht.explain(q, k, v, dropout_p=1.0))

    def test_arrays_of_torch(self):
        q, k, v = (x.transpose(1, 2) for x in tensors(dtype=torch.bfloat16, grad=False))
        self.assertIn("flash: chosen", hr.explain(q, k, v))
        self.assertIn("flash: chosen", hr.explain(q.shape, k.shape, torch.bfloat16))
        self.assertEqual(hr.Attention(q.shape, k.shape, torch.bfloat16).dtype, "bfloat16")
        peaks = {hr.forecast("small", precision=p, device=d).peak_bytes for p in (torch.bfloat16, "bfloat16", "bf16") for d in (torch.device("cpu"), "cpu")}
        self.assertEqual(len(peaks), 1)
        r = hr.attention_forward(q, k, v, mask="causal:top-left")
        self.assertTrue(torch.equal(r.o, ht.attention(q, k, v, is_causal=True, layout="blhd")))
        dq, _, _ = r.backward(torch.ones(()).to(torch.bfloat16).expand(r.o.shape))
        self.assertEqual(dq.shape, q.shape)


class OperatorTest(Base):
    def test_options_have_the_order_of_the_operators_schema(self):
        from gpu_headroom.torch.calls import Options

        schema = [a.name for a in torch.ops.headroom.attention_forward.default._schema.arguments]
        self.assertEqual(tuple(schema[-len(Options._fields) :]), Options._fields)

    def test_the_kind_of_error_does_not_hang_on_its_words(self):
        q = torch.randn(1, 2, 5, 8)
        with self.assertRaisesRegex(ValueError, "layout 'this is a layout': bhld"):
            ht.attention(q, q, q, layout="this is a layout")
        with self.assertRaisesRegex(TypeError, "k is torch.float64"):
            ht.attention(q, q.double(), q)

    def test_opcheck(self):
        for device in DEVICES:
            for heads_first, mask in itertools.product((True, False), ((0, False, 0, 0, 0.0), (1, True, 0, 0, 0.0), (2, False, 5, 2, 3.0))):
                q, k, v = tensors(device, torch.float32 if device == "cpu" else torch.bfloat16)
                if not heads_first:
                    q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v))
                options = (*mask, None, heads_first, "", False, 0)
                sink = torch.randn(4, device=device, requires_grad=True)
                cu_q, cu_k = (torch.tensor([[0, 9, n], [0, 0, n]], dtype=torch.int32, device=device) for n in (33, 40))
                for with_ in ((None, None, None), (sink, cu_q, cu_k)):
                    torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, k, v, *with_, None, None, *options))
                    held = [x if x is None else x.detach() for x in (q, k, v, *with_)]
                    o, lse = torch.ops.headroom.attention_forward(*held, None, None, *options)
                    backward = (torch.randn_like(o), None, *held[:3], o, lse, *held[3:], None, *options)
                    torch.library.opcheck(torch.ops.headroom.attention_backward.default, backward)
                seed, dropped = torch.tensor([5, 6], device=device), (*options, 0, 0.25)
                torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, k, v, None, None, None, None, seed, *dropped))
                o, lse = torch.ops.headroom.attention_forward(*held[:3], None, None, None, None, seed, *dropped)
                backward = (torch.randn_like(o), None, *held[:3], o, lse, None, None, None, seed, *dropped)
                torch.library.opcheck(torch.ops.headroom.attention_backward.default, backward)
            q = tensors(device, len_q=2, grad=False)[0]
            pages, table = torch.randn(6, 2, 8, 16, device=device), torch.tensor([[0, 3], [5, 1]], dtype=torch.int32, device=device)
            options = (1, False, 0, 0, 0.0, None, True, "", False, 0)
            torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, pages, pages + 1, None, None, None, table, None, *options))

    def test_compile_without_graph_breaks(self):
        for device in DEVICES:

            def f(q, k, v):
                o, lse = ht.attention(q, k, v, is_causal=True, return_lse=True)
                return (o * 2).sum() + lse.sum()

            compiled = torch.compile(f, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
            for seed in range(2):
                q, k, v = tensors(device, seed=seed)
                got, want = torch.autograd.grad(compiled(q, k, v), [q, k, v]), torch.autograd.grad(f(q, k, v), [q, k, v])
                for g, w in zip(got, want):
                    self.near(g, w, torch.float32)

    def test_compile_with_dynamic_shapes(self):
        compiled = torch.compile(lambda q, k, v: ht.attention(q, k, v, is_causal=True), fullgraph=True, dynamic=True, backend="aot_eager")
        with torch._dynamo.config.patch(error_on_recompile=True):
            for n in (33, 40, 57, 128):
                q, k, v = tensors(len_q=n, len_k=n)
                o = compiled(q, k, v)
                self.near(o, ht.attention(q, k, v, is_causal=True), torch.float32)
                o.sum().backward()
        scaled = torch.compile(lambda q, k, v, s: ht.attention(q, k, v, scale=s, softcap=2 * s), fullgraph=True, dynamic=True,
                               backend="aot_eager")  # fmt: skip
        for s in (0.5, 0.25, 0.125):
            self.near(scaled(q, k, v, s), ht.attention(q, k, v, scale=s, softcap=2 * s), torch.float32)

    def test_compile_with_documents_and_sinks(self):
        for device in DEVICES:

            def f(q, k, v, sink, cu):
                return ht.attention(q, k, v, is_causal=True, sink=sink, cu_seqlens_q=cu)

            compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")
            for n, documents in ((40, 2), (57, 3), (33, 5)):
                q, k, v = tensors(device, len_q=n, len_k=n)
                sink = torch.randn(4, device=device, requires_grad=True)
                cu = torch.arange(documents + 1, dtype=torch.int32, device=device).expand(2, -1) * 6
                up = torch.randn_like(q)
                got = torch.autograd.grad(compiled(q, k, v, sink, cu), [q, k, v, sink], up)
                for g, w in zip(got, torch.autograd.grad(f(q, k, v, sink, cu), [q, k, v, sink], up)):
                    self.near(g, w, torch.float32)

    def test_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            o, lse = ht.attention(*[torch.empty(2, 4, 32, 16, device="cpu") for _ in range(3)], return_lse=True)
        self.assertEqual((tuple(o.shape), tuple(lse.shape), lse.dtype), ((2, 4, 32, 16), (2, 4, 32), torch.float32))

    def test_checkpointing_and_anomaly_mode(self):
        from torch.utils.checkpoint import checkpoint

        q, k, v = tensors()
        with torch.autograd.detect_anomaly(check_nan=True):
            got = torch.autograd.grad(checkpoint(ht.attention, q, k, v, use_reentrant=False).sum(), [q, k, v])
        for g, w in zip(got, torch.autograd.grad(ht.attention(q, k, v).sum(), [q, k, v])):
            self.assertTrue(torch.equal(g, w))

    def test_a_graph_is_captured(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors("cuda", torch.bfloat16, len_q=256, len_k=256, dim=64)
        up = torch.randn_like(q)

        def step():
            o = ht.attention(q, k, v, is_causal=True, deterministic=True)
            return (o, *torch.autograd.grad(o, [q, k, v], up))

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            want = step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = step()
        graph.replay()
        torch.cuda.synchronize()
        for g, w in zip(got, want):
            self.assertTrue(torch.equal(g, w))

    def test_the_current_stream_is_used(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors("cuda", torch.bfloat16, len_q=2048, len_k=2048, dim=64, grad=False)
        want = ht.attention(q, k, v)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            late = q * 0
            torch.cuda._sleep(100_000_000)
            late += q
            o = ht.attention(late, k, v)
        side.synchronize()
        self.assertTrue(torch.equal(o, want))

    def test_another_device_is_refused(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors(grad=False)
        with self.assertRaisesRegex(ValueError, "k is on cuda:0, q is on cpu"):
            ht.attention(q, k.cuda(), v)


if __name__ == "__main__":
    unittest.main()
