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
from gpu_headroom.torch import checks, kept_calls, sdpa


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
                torch.ops.headroom.attention_backward(o, None, q, k, v, o, lse, None, None, None, None, None, *checks.options_of(
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
        of_numpy = type("bool", (), {"__module__": "numpy"})()
        for argument in ("is_causal", "deterministic", "tf32"):
            with self.assertRaisesRegex(TypeError, f"{argument} is a numpy.bool: True or False"):
                ht.attention(q, q, q, **{argument: of_numpy})
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
                with mock.patch.object(kept_calls, "options_of", heard), mock.patch.object(sdpa, "options_of", heard), ht.replace_sdpa():
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

    def test_a_tensor_that_was_changed_is_not_read_again(self):
        for changed in ("q", "k", "v", "o"):
            given = {name: x.detach() for name, x in zip("qkv", (t.transpose(1, 2) for t in tensors(heads=2, seed=5, grad=False)))}
            r = hr.attention_forward(*given.values())
            d_o = torch.ones_like(r.o)
            r.backward(d_o)
            ({**given, "o": r.o}[changed]).mul_(2)
            with self.assertRaisesRegex(ValueError, f"{changed} was changed after forward"):
                r.backward(d_o)
        with torch.inference_mode():  # has no count of changes
            q, k, v = (t.transpose(1, 2) for t in tensors(heads=2, seed=5, grad=False))
            hr.attention_forward(q.clone(), k.clone(), v.clone()).backward(torch.ones_like(q))

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


if __name__ == "__main__":
    unittest.main()
