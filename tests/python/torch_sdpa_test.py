"""replace_sdpa: an unchanged model's calls, served or left to torch, with torch's results."""

import itertools
import pickle
import sys
import unittest

from torch_cases import DEVICES, FUSED, Base, packed, reference, tensors, torch, visible

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
            (three, three, three, {"attn_mask": torch.ones(1, 1, 1, 5, dtype=torch.bool)}),  # torch's versions differ
        ):
            want = outcome(given, named)
            with self.subTest(shape=given[0].shape), ht.replace_sdpa() as seen:
                self.assertEqual(outcome(given, named), want)
            self.assertEqual(seen.served, 0)

    def test_masks_of_nothing(self):
        F = torch.nn.functional
        for device, (batch, len_q, len_k) in itertools.product(DEVICES, ((2, 0, 7), (0, 5, 7), (2, 5, 0), (2, 0, 0), (0, 0, 0))):
            q, k, v = torch.randn(batch, 2, len_q, 8, device=device), *torch.randn(2, batch, 2, len_k, 8, device=device)
            for mask in (torch.ones(len_q, len_k, dtype=torch.bool), torch.zeros(batch, 1, 1, len_k), torch.zeros(1, 1, len_q, 1)):
                with ht.replace_sdpa() as seen:
                    o = F.scaled_dot_product_attention(q, k, v, mask.to(device))
                want = F.scaled_dot_product_attention(q, k, v, mask.to(device))
                self.assertEqual((o.shape, seen.served), (want.shape, 1), (batch, len_q, len_k, mask.shape))
                if device == "cpu":
                    self.assertEqual(o.stride(), want.stride())
                self.assertTrue(torch.equal(o, want))

    def test_who_has_a_say_in_torchs_functions_has_it_within(self):
        from torch.overrides import TorchFunctionMode

        F = torch.nn.functional
        handled = {F.scaled_dot_product_attention: lambda *given, **named: "its own answer"}

        class Tensor(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, given=(), named=None):
                return handled[function](*given, **(named or {})) if function in handled else NotImplemented

        class Listen(TorchFunctionMode):
            def __torch_function__(self, function, types, given=(), named=None):
                heard.append(function is F.scaled_dot_product_attention)
                return function(*given, **(named or {}))

        q, k, v = tensors(heads=2, grad=False)
        for _ in range(2):  # in the second call, which skips checks, too
            heard = []
            with ht.replace_sdpa() as seen:
                self.assertEqual(F.scaled_dot_product_attention(q, k.as_subclass(Tensor), v), "its own answer")
                want = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
                with Listen():
                    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
            self.assertTrue(torch.equal(o, want))
            self.assertEqual((heard, seen.served), ([True], 2))
            self.assertIn("Tensor is a tensor subclass or a mode with its own __torch_function__", seen.explain())

    def test_scripts_are_torchs(self):
        class Model(torch.nn.Module):
            def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)

        q, k, v = tensors(heads=2, grad=False)
        x, layer = torch.randn(2, 5, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
        with ht.replace_sdpa() as seen:
            got, of_layer = torch.jit.script(Model())(q, k, v), torch.jit.script(layer)(x, x, x, need_weights=False)[0]
        self.near(got, Model()(q, k, v), torch.float32)
        self.near(of_layer, layer(x, x, x, need_weights=False)[0], torch.float32)
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

    def test_torchs_causal_biases(self):
        from torch.nn.attention.bias import causal_lower_right, causal_upper_left

        F = torch.nn.functional
        for device, (make, align), (len_q, len_k) in itertools.product(
            DEVICES, ((causal_upper_left, "top-left"), (causal_lower_right, "bottom-right")), ((33, 40), (33, 33), (1, 40))
        ):
            with self.subTest(device=device, align=align, len_q=len_q):
                q, k, v = tensors(device, heads=2, len_q=len_q, len_k=len_k)
                want = reference(q, k, v, is_causal=True, align=align)[0]
                bias = make(len_q, len_k)
                with ht.replace_sdpa() as seen:
                    self.near(F.scaled_dot_product_attention(q, k, v, bias), want, torch.float32)
                    self.assertEqual((seen.served, dict(seen.left)), (1, {}))
                    self.near(sdpa._torchs(q, k, v, attn_mask=bias), want, torch.float32, "a name that was imported")
                    exact = [x.detach().double() for x in (q, k, v)]
                    if not (device == "cuda" and align == "bottom-right"):  # torch 2.11 itself gives NaN there in float64
                        self.near(F.scaled_dot_product_attention(*exact, attn_mask=bias), want, torch.float32, "left to torch")
                    F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=1.0)
                    self.assertIs(F.scaled_dot_product_attention, sdpa._sdpa)
                    with self.assertRaisesRegex(ValueError, "should not be used with causal=True"):
                        F.scaled_dot_product_attention(q, k, v, bias, is_causal=True)
                self.assertIn("dropout_p is 1.0", seen.explain())
                compiled = torch.compile(lambda *x: F.scaled_dot_product_attention(*x, attn_mask=bias), fullgraph=True, backend="aot_eager")  # noqa: B023
                with ht.replace_sdpa() as seen:
                    self.near(compiled(q, k, v), want, torch.float32)
                    self.near(compiled(*exact), want, torch.float32, "left to torch")
                self.assertEqual((seen.compiled, "float64" in seen.explain()), (1, True), seen.explain())
                torch._dynamo.reset()

    def served(self, mask, q, k, v, again=True):
        """Replaced attention with this mask is right, forward and backward, and ours."""
        want, _ = reference(q, k, v, seen=mask.expand(q.shape[0], 1, q.shape[2], k.shape[2]).cpu())
        up = torch.randn_like(want)
        with ht.replace_sdpa() as seen:
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        self.assertEqual((seen.served, dict(seen.left)), (1, {}))
        self.near(o, want, q.dtype)
        exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
        want = torch.autograd.grad(reference(*exact, seen=mask.expand(q.shape[0], 1, q.shape[2], k.shape[2]).cpu())[0], exact, up)
        for got, w in zip(torch.autograd.grad(o, (q, k, v), up.to(o)), want):
            self.near(got, w, q.dtype)
        if again:  # 0 where a key is seen, and -inf
            self.served_as_numbers(mask, q, k, v, o)

    def served_as_numbers(self, mask, q, k, v, want):
        with ht.replace_sdpa() as seen:
            added = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
            self.assertTrue(torch.equal(torch.nn.functional.scaled_dot_product_attention(q, k, v, added, enable_gqa=True), want))
        self.assertEqual(seen.served, 1)

    def test_masks_that_are_windows_padding_or_documents(self):
        def documents(*ends, length=40, **mask):
            return packed([ends], [ends], length, length, **mask)

        for device in DEVICES:
            q, k, v = tensors(device, len_q=40)
            causal = visible(40, 40, is_causal=True)[None, None]
            padding = torch.arange(40) < torch.tensor([[40], [29]])
            left = torch.arange(40) >= torch.tensor([[0], [11]])
            ones = torch.ones(1, 1, 40, 40, dtype=torch.bool)
            for name, mask in (
                ("all", ones), ("causal", causal), ("window", visible(40, 40, window=7)[None, None]),
                ("both sides", visible(40, 40, window=(7, 3))[None, None]), ("after alone", visible(40, 40, window=(99, 3))[None, None]),
                ("padding behind", padding[:, None, None]), ("padding before", left[:, None, None]),
                ("causal, padding behind", causal & padding[:, None, None]), ("causal, padding before", causal & left[:, None, None]),
                ("padding of both", causal & left[:, None, None] & left[:, None, :, None]),
                ("window, padding before", visible(40, 40, window=7) & left[:, None, None]),
                ("a few keys", ones & ((torch.arange(40) > 4) & (torch.arange(40) < 30))),
                ("documents", documents(0, 13, 14, 40)), ("causal documents", documents(0, 13, 14, 40, is_causal=True)),
                ("windows in documents", documents(0, 17, 40, window=5)), ("not all in documents", documents(0, 13, 31, is_causal=True)),
                ("each its own", torch.eye(40, dtype=torch.bool)[None, None]), ("nothing", ~ones),
                ("documents of two sequences", torch.cat([documents(0, 9, 40), documents(0, 22, 31, 40)])),
                ("rows that see nothing", causal & (torch.arange(40) % 40 > 3)[:, None]),
            ):  # fmt: skip
                with self.subTest(name, device=device):
                    self.served(mask.to(device), q, k, v)
            for len_q, len_k, more in ((1, 40, {"is_causal": True}), (9, 40, {"is_causal": True}), (40, 9, {"is_causal": True}), (9, 40, {"window": 5})):
                q, k, v = tensors(device, len_q=len_q, len_k=len_k)
                for align in ("top-left", "bottom-right"):
                    with self.subTest("lengths differ", len_q=len_q, len_k=len_k, align=align):
                        self.served(visible(len_q, len_k, align=align, **more)[None, None].to(device), q, k, v)
            q, k, v = tensors(device, len_q=3, len_k=40)  # a static cache of 40, 17 of which are there
            mask = torch.zeros(1, 1, 3, 40, dtype=torch.bool, device=device)
            mask[..., :17] = visible(3, 17, is_causal=True, align="bottom-right")
            self.served(mask, q, k, v)

    def test_masks_where_new_tensors_are_made_on_another_device(self):
        q, k, v = tensors()
        row, key = torch.arange(33)[:, None], torch.arange(40)
        window, padding = (key <= row + 7) & (key > row - 3), (key < torch.tensor([[31], [40]]))[:, None, None]
        want = [reference(q, k, v, seen=seen.expand(2, 1, 33, 40))[0] for seen in (window, padding, window & padding)]
        with torch.device("meta"), ht.replace_sdpa() as seen:
            made = [torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True) for mask in (window, padding, window & padding)]
        self.assertEqual((seen.served, dict(seen.left)), (3, {}))
        for o, exact in zip(made, want):
            self.near(o, exact, torch.float32)

    def test_masks_of_other_shapes(self):
        F = torch.nn.functional
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        mask = visible(40, 40, window=7)
        with ht.replace_sdpa() as seen:
            want = F.scaled_dot_product_attention(q, k, v, mask)
            for given in (mask[None], mask[None, None], mask[None, None].expand(2, 2, -1, -1), mask.expand(2, 2, 40, 40).clone()):
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, given), want))
            three = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), mask.expand(4, 40, 40))
            self.assertTrue(torch.equal(three.unflatten(0, (2, 2)), want))
            low = torch.zeros(40, 40).masked_fill(~mask, torch.finfo(torch.float32).min)
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, low), want))
            of_heads = mask.expand(2, 40, 40).clone()  # torch reads three dimensions as those of heads, not of sequences
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, of_heads), want))
        self.assertEqual((seen.served, dict(seen.left)), (8, {}))
        self.assertIsNone(ht.why_not(q, k, v, mask))
        self.assertIn("flash: chosen", ht.explain(q, k, v, mask))

    def test_masks_that_are_more_are_torchs(self):
        F, torchs = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        holes = torch.ones(40, 40, dtype=torch.bool)
        holes[5, 7] = False
        one_off = visible(40, 40, is_causal=True)
        one_off[20, 20] = False
        heads = torch.stack([visible(40, 40, window=5), visible(40, 40, window=6)])
        prefix = visible(40, 40, is_causal=True)
        prefix[:10, :10] = True  # sees both ways there
        slopes = torch.arange(40.0)[None] * torch.tensor([0.5, 0.25])[:, None, None]
        lowest = torch.full((40, 40), torch.finfo(torch.float32).min)
        for mask, words in ((holes, "a hole"), (one_off, "its rows begin or end"), (heads[None], "differs between heads"), (prefix, "rows begin or end"),
                            (heads, "differs between heads"),
                            (slopes[None], "a bias, as ALiBi's"), (torch.zeros(40, 40).requires_grad_(), "a bias"), (lowest, "the mean of all values")):  # fmt: skip
            with ht.replace_sdpa() as seen:
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, mask), torchs(q, k, v, mask)))
            self.assertEqual(seen.served, 0)
            self.assertRegex(seen.explain(), words)
        with ht.replace_sdpa() as seen, self.assertRaises(RuntimeError):
            F.scaled_dot_product_attention(q, k, v, torch.ones(3, 40, dtype=torch.bool))
        self.assertIn("attn_mask is (3, 40), which does not fit", seen.explain())
        several = torch.stack([visible(40, 40, window=5), visible(40, 40, is_causal=True)])
        by_mask = torch.vmap(lambda m: F.scaled_dot_product_attention(q, k, v, m))
        with ht.replace_sdpa() as seen:
            self.near(by_mask(several), torch.stack([torchs(q, k, v, m) for m in several]), torch.float32)
            meta = [t.to("meta") for t in (q, k, v, one_off)]
            self.assertEqual(F.scaled_dot_product_attention(*meta).shape, q.shape)
        self.assertRegex(seen.explain(), "inside torch.func's transforms")
        self.assertRegex(seen.explain(), "on meta, where there are no numbers")
        compiled = torch.compile(lambda m: F.scaled_dot_product_attention(q, k, v, m), backend="eager")
        with ht.replace_sdpa() as seen:
            self.near(compiled(one_off), torchs(q, k, v, one_off), torch.float32)
        self.assertIn("cannot be read in compiled code", seen.explain())

    def test_functionalized_code_is_served_but_for_gradients(self):
        F = torch.nn.functional
        q, k, v = tensors(grad=False)
        call = lambda q: F.scaled_dot_product_attention(q, k, v, enable_gqa=True).square().sum()  # noqa: E731
        functionalize, grad, vmap = torch.func.functionalize, torch.func.grad, torch.func.vmap
        for transform, left in (
            (functionalize, []),
            (lambda f: functionalize(lambda q: vmap(f)(torch.stack([q, q * 2]))), []),
            (lambda f: functionalize(grad(f)), ["where torch.func.functionalize is asked for gradients, which it does not support of custom autograd functions"]),
        ):
            with ht.replace_sdpa() as seen:
                got = transform(call)(q)
            self.near(got, transform(call)(q), torch.float32)
            self.assertEqual(list(seen.left), left)

    def test_compiled_derivatives_of_torchs_func_are_torchs(self):
        F, (q, k, v) = torch.nn.functional, tensors(heads=2, grad=False)
        loss = lambda q: F.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum()  # noqa: E731
        want = torch.func.grad(loss)(q)
        for call, left in ((lambda q: torch.func.grad(loss)(q), True), (lambda q: torch.func.vmap(loss)(torch.stack([q, q])), False)):
            torch._dynamo.reset()
            with ht.replace_sdpa() as seen:
                got = torch.compile(call, fullgraph=True, backend="aot_eager")(q)
            self.near(got, want if left else call(q), torch.float32)
            self.assertEqual("where torch.compile is around torch.func.grad" in seen.explain(), left, seen.explain())
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "compile what is inside of them"):
            torch.compile(torch.func.grad(lambda q: ht.attention(q, k, v).sum()), fullgraph=True, backend="aot_eager")(q)

    def test_what_a_mask_says_is_not_recorded(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        F = torch.nn.functional
        q, k, v = tensors(grad=False, len_k=33)
        call = lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)  # noqa: E731
        first = torch.ones(33, 33, dtype=torch.bool).tril()
        second = first & (torch.arange(33) != 5)
        want = call(q, k, v, second)
        with ht.replace_sdpa() as seen:
            for how, early in itertools.product(("jit", "real", "fake", "symbolic"), (False, True)):
                with self.subTest(how, pre_dispatch=early):
                    if how == "jit":
                        made = torch.jit.trace(call, (q, k, v, first), check_trace=False)
                    else:
                        made = make_fx(call, tracing_mode=how, pre_dispatch=early)(q, k, v, first)
                    self.near(made(q, k, v, second), want, torch.float32)
        self.assertEqual(seen.served, 0, seen.explain())
        self.assertEqual(len(seen.left), 1, seen.explain())

    def test_a_mask_that_numpy_or_data_wrote_is_read_again(self):
        import numpy as np

        F = torch.nn.functional
        q, k, v = tensors(heads=2, len_q=9, len_k=9, grad=False)
        array = np.ones((9, 9), dtype=bool)
        mask = torch.from_numpy(array)
        with ht.replace_sdpa() as seen:
            for write in (lambda: None, lambda: array.__setitem__(slice(None), np.tril(array)), lambda: mask.data.fill_(True)):
                write()
                self.near(F.scaled_dot_product_attention(q, k, v, attn_mask=mask), reference(q, k, v, seen=mask)[0], torch.float32)
        self.assertEqual((seen.served, dict(seen.left)), (3, {}))

    def test_a_mask_is_read_once_for_each_version(self):
        from unittest import mock

        from gpu_headroom.torch import masks

        F = torch.nn.functional
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        whole = torch.zeros(1, 1, 64, 64, dtype=torch.bool)
        whole[..., :40, :40] = visible(40, 40, window=7)
        with ht.replace_sdpa() as seen, mock.patch.object(masks, "_find", wraps=masks._find) as find:
            for _ in range(3):  # each layer makes a view of its own
                F.scaled_dot_product_attention(q, k, v, whole[:, :, :40, :40])
            self.assertEqual(find.call_count, 1)
            whole[..., :40, :40] = visible(40, 40, window=9)
            got = F.scaled_dot_product_attention(q, k, v, whole[:, :, :40, :40])
            self.assertEqual(find.call_count, 2)
            self.near(got, reference(q, k, v, window=9)[0], torch.float32)
            for n in (3, 5, 11):  # memory that is given back and lent again is another storage
                got = F.scaled_dot_product_attention(q, k, v, visible(40, 40, window=n))
                self.near(got, reference(q, k, v, window=n)[0], torch.float32)
            with torch.inference_mode():
                mask = visible(40, 40, window=3)
                F.scaled_dot_product_attention(q, k, v, mask)
                mask.copy_(visible(40, 40, window=4))
                self.near(F.scaled_dot_product_attention(q, k, v, mask), reference(q, k, v, window=4)[0], torch.float32)
        self.assertEqual((seen.served, dict(seen.left)), (9, {}))
        for n in range(2 * masks._MOST_KEPT):
            masks.read(torch.ones(1, 40, dtype=torch.bool), q, k)
        self.assertLessEqual(len(masks._kept), masks._MOST_KEPT)

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

    def test_results_have_torchs_strides(self):
        F = torch.nn.functional
        made = {
            "in order": lambda n: torch.randn(2, 3, n, 8), "positions first": lambda n: torch.randn(2, n, 3, 8).transpose(1, 2),
            "batch inside": lambda n: torch.randn(n, 2, 3, 8).permute(1, 2, 0, 3), "packed": lambda n: torch.randn(2, n, 3, 3, 8)[:, :, 0].transpose(1, 2),
            "heads first": lambda n: torch.randn(3, 2, n, 8).transpose(0, 1), "turned": lambda n: torch.randn(2, 3, 8, n).transpose(2, 3),
            "expanded": lambda n: torch.randn(1, 3, n, 8).expand(2, 3, n, 8),
        }  # fmt: skip
        backend = torch.nn.attention.SDPBackend
        ways = [("cpu", FUSED)] + [("cuda", chosen) for chosen in (list(backend.__members__.values())[1:], *([b] for b in (*FUSED, backend.CUDNN_ATTENTION)))]
        ways = [way for way in ways if way[0] in DEVICES]
        for (device, chosen), (how, make), n, dtype in itertools.product(ways, made.items(), (1, 33), (torch.float32, torch.bfloat16)):
            with self.subTest(how=how, n=n, device=device, dtype=dtype, chosen=chosen), torch.nn.attention.sdpa_kernel(chosen):
                q, k, v = (make(n).to(device, dtype).requires_grad_(device == "cuda") for _ in range(3))
                try:
                    want = F.scaled_dot_product_attention(q, k, v)
                except RuntimeError as refused:
                    self.assertRegex(str(refused), "No available kernel|not correctly aligned", "torch's own refusals")
                    continue
                with ht.replace_sdpa(even_if_chosen=True) as seen:
                    for _ in range(2):  # known the second time
                        o = F.scaled_dot_product_attention(q, k, v)
                self.assertEqual(seen.served, 2)
                for length, got, torchs in zip(o.shape, o.stride(), want.stride()):
                    self.assertTrue(length == 1 or got == torchs, (o.stride(), want.stride()))
                self.near(o, want, dtype)
                self.assertEqual(o.requires_grad, want.requires_grad)

    def test_results_have_torchs_strides_where_it_takes_its_math_attention(self):
        F = torch.nn.functional
        positions_first = lambda *shape: torch.randn(shape).transpose(1, 2)  # noqa: E731
        calls = {
            "values of another dimension": (positions_first(2, 9, 3, 8), positions_first(2, 7, 3, 8), positions_first(2, 7, 3, 12), None),
            "three dimensions": (*(torch.randn(9, 2, 8).transpose(0, 1) for _ in range(3)), None),
            "numbers of another type": (*(positions_first(2, 9, 3, 8).half() for _ in range(3)), torch.zeros(9, 9)),
        }
        for device, (what, (*given, mask)) in itertools.product(DEVICES, calls.items()):
            if device != "cpu" and mask is not None:
                continue  # kernels for CUDA refuse such a mask
            q, k, v = (x.to(device) for x in given)
            want = F.scaled_dot_product_attention(q, k, v, mask)
            with self.subTest(what, device=device), ht.replace_sdpa() as seen:
                for _ in range(2):  # known the second time
                    self.assertEqual(F.scaled_dot_product_attention(q, k, v, mask).stride(), want.stride())
                self.assertEqual(seen.served, 2, seen.explain())
            if mask is None:  # where torch cannot be asked
                with ht.replace_sdpa() as seen:
                    several = torch.func.vmap(lambda q: F.scaled_dot_product_attention(q, k, v))(torch.stack([q, q]))  # noqa: B023
                self.assertEqual(seen.served, 1, seen.explain())
                self.near(several[1], want, q.dtype)

    def test_compiled_once_for_every_length_and_order(self):
        F = torch.nn.functional
        call = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # noqa: E731
        for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)):  # the memory's
            compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
            with ht.replace_sdpa() as seen, torch._dynamo.config.patch(error_on_recompile=True):
                for n in (33, 40, 57):
                    back = [order.index(d) for d in range(4)]
                    given = [x.detach().permute(order).contiguous().permute(back).requires_grad_() for x in tensors(len_q=n, len_k=n)]
                    o, want = compiled(*given), call(*given)
                    self.assertEqual(o.stride(), want.stride())
                    for got, w in zip((o, *torch.autograd.grad(o.sum(), given)), (want, *torch.autograd.grad(want.sum(), given))):
                        self.near(got, w, torch.float32)
            self.assertEqual((seen.compiled > 0, seen.left), (True, {}), seen.explain())
            torch._dynamo.reset()

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

    def test_flops_are_counted(self):
        code = (
            "import torch, torch.nn.functional as F, gpu_headroom.torch as ht\n"
            "from torch.utils.flop_counter import FlopCounterMode, flop_registry\n"
            "q, k = (torch.randn(2, 4, n, 16, requires_grad=True) for n in (8, 12))\n"
            "with FlopCounterMode(display=False) as counted, ht.replace_sdpa():\n"
            "    F.scaled_dot_product_attention(q, k, k[..., :8]).sum().backward()\n"
            "    ht.attention(q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2), layout='blhd')\n"
            "products = 2 * 2 * 4 * 8 * 12\n"
            "assert counted.get_total_flops() == products * (16 * 4 + 8 * 3 + 16 * 2), counted.get_total_flops()\n"
        )
        import subprocess

        for before in ("", "import torch.utils.flop_counter\n"):
            subprocess.run([sys.executable, "-c", before + code], check=True)

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

    def test_a_module_of_torchs(self):
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        x = torch.randn(2, 10, 64, requires_grad=True)
        want = layer(x)
        with ht.replace_sdpa() as seen:
            self.near(layer(x), want, torch.float32)
        self.assertGreater(seen.served, 0, seen.explain())

    def test_models_of_transformers(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=128)
        for device, (config, model) in itertools.product(DEVICES, (
            (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
            (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        )):
            with self.subTest(model=model.__name__, device=device):
                torch.manual_seed(0)
                try:
                    net = model(config(**sizes, head_dim=16, attn_implementation="sdpa")).to(device)
                except ImportError as needs:
                    self.skipTest(" ".join(str(needs).split()))
                tokens = torch.randint(0, 300, (2, 50), device=device)

                def step():
                    net.zero_grad()
                    loss = net(tokens, labels=tokens).loss
                    loss.backward()
                    return loss.detach(), [p.grad.clone() for p in net.parameters()]

                loss, gradients = step()
                with ht.replace_sdpa() as seen:
                    ours, our_gradients = step()
                self.assertEqual((seen.served, sum(seen.left.values())), (2, 0), seen.explain())
                self.near(ours, loss, torch.float32)
                for g, w in zip(our_gradients, gradients):
                    self.near(g, w, torch.float32)
                f = hr.forecast(net.config, batch=2, len=50, device="h200")
                self.assertEqual(f.params, sum(p.numel() for p in net.parameters()))


if __name__ == "__main__":
    unittest.main()
