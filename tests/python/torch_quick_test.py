"""Calls that were made before: libheadroom makes them without Python's code (gpu_headroom/torch/quick.py). They have the bits and errors of the others."""

import gc
import itertools
import os
import sys
import unittest
import weakref
from unittest import mock

from torch_cases import DEVICES, Base, tensors, torch

import gpu_headroom as hr
import gpu_headroom.torch as ht
from gpu_headroom.torch import calls, direct, quick
from gpu_headroom.torch.flash_attn import flash_attn_func

OURS = os.path.dirname(ht.__file__)


def python_only():
    """Without what was kept here, as where torch has no exchange interface."""
    return mock.patch.object(quick, "attend", None)


def both(f, inputs, up=None):
    """The result of f, its gradients, and all strides."""
    o = f(*inputs)
    first = o[0] if isinstance(o, tuple) else o
    grads = torch.autograd.grad(first, inputs, torch.ones_like(first) if up is None else up)
    return [*(o if isinstance(o, tuple) else (o,)), *grads]


def entered(f):
    """Names of our own functions of Python that run, those of files in gpu_headroom/torch."""
    names = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        f()
    finally:
        sys.setprofile(None)
    return names


class QuickTest(Base):
    def setUp(self):
        if quick.attend is None:
            self.assertFalse(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"))  # torch before 2.10
            self.skipTest("this torch has no exchange interface of DLPack")

    def test_torchs_negative_bit_is_heeded(self):  # memory holds the numbers with the other sign; once what is like them was kept, too
        for device in DEVICES:
            q, k, v = (torch.randn(1, 2, 9, 16, device=device) for _ in range(3))
            up = torch.randn(1, 2, 9, 16, device=device)
            for f in (ht.attention, flash_attn_func):
                for _ in range(3):
                    plain = [t.clone().requires_grad_() for t in (q, k, v)]
                    want = both(f, plain, up)
                    for at in range(3):
                        given = [t.detach().requires_grad_() for t in (q, k, v)]
                        turned = [torch._neg_view(-t) if i == at else t for i, t in enumerate(given)]
                        o = f(*turned)
                        self.equal([o, *torch.autograd.grad(o, given, torch._neg_view(-up))], want)

    def equal(self, got, want):
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertTrue(torch.equal(g, w))
            self.assertEqual((g.stride(), g.dtype, g.device), (w.stride(), w.dtype, w.device))

    def test_the_same_bits_and_strides(self):
        masks = ({}, {"is_causal": True}, {"window": 9}, {"window": (9, 3), "align": "bottom-right", "softcap": 3.0}, {"scale": 0.3, "return_lse": True})
        for device, dtype in itertools.product(DEVICES, (torch.float32, torch.bfloat16, torch.float16)):
            for layout, options in itertools.product(("bhld", "blhd", "swapped"), masks):
                options = {**options, "layout": "blhd" if layout == "blhd" else "bhld", "deterministic": True}
                inputs = tensors(device, dtype)
                if layout != "bhld":
                    inputs = [x.detach().transpose(1, 2).contiguous() for x in inputs]
                    inputs = [(x if layout == "blhd" else x.transpose(1, 2)).requires_grad_() for x in inputs]
                up = torch.randn_like(inputs[0])
                with python_only():
                    want = both(lambda *t, o=options: ht.attention(*t, **o), inputs, up)
                for _ in range(3):
                    self.equal(both(lambda *t, o=options: ht.attention(*t, **o), inputs, up), want)
                with torch.no_grad():
                    o = ht.attention(*inputs, **options)
                self.equal(o if isinstance(o, tuple) else [o], want[: len(want) - 3])

    def test_dropout_draws_anew_in_every_call(self):
        for device, layout in itertools.product(DEVICES, ("bhld", "blhd")):
            q, k, v = tensors(device, torch.bfloat16)
            if layout == "blhd":
                q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v))
            up = torch.randn_like(q)

            def call(*inputs, layout=layout):
                return ht.attention(*inputs, dropout_p=0.3, is_causal=True, layout=layout, deterministic=True)

            def three(up=up, inputs=(q, k, v), call=call):
                torch.manual_seed(5)
                return [both(call, inputs, up) for _ in range(3)]

            three()
            self.assertEqual(entered(lambda: both(call, (q, k, v), up)), ["attention"])
            with python_only():
                want = three()
            for got, w in zip(three(), want):
                self.equal(got, w)
            self.assertFalse(torch.equal(want[1][0], want[2][0]))
            for pack, unpack in ((lambda t: t.repeat_interleave(2, -1), lambda t: t[..., ::2]), (lambda t: t.clone(), lambda t: t)):
                with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                    self.equal(three()[2], want[2])

    def test_dropout_inside_replace_sdpa_and_with_gradients_of_lse(self):
        inputs = tensors(kv_heads=4, len_q=40)

        def some(call):
            torch.manual_seed(6)
            return [call() for _ in range(3)]

        def inside():
            return both(lambda *t: torch.nn.functional.scaled_dot_product_attention(*t, dropout_p=0.2), inputs)

        def of_lse():
            o, lse = ht.attention(*inputs, dropout_p=0.2, return_lse=True)
            return [o, lse, *torch.autograd.grad(o.sum() + lse.sum(), inputs)]

        for call in (inside, of_lse):
            with ht.replace_sdpa():
                some(call)
                with python_only():
                    want = some(call)
                for got, w in zip(some(call), want):
                    self.equal(got, w)

    def test_other_doors(self):
        inputs = tensors(kv_heads=4, len_q=40)
        with ht.replace_sdpa() as seen:
            f = torch.nn.functional.scaled_dot_product_attention
            got = [both(lambda *t: f(*t, is_causal=True), inputs) for _ in range(3)]
        self.assertEqual(seen.served, 3)
        with python_only(), ht.replace_sdpa():
            self.equal(got[2], both(lambda *t: f(*t, is_causal=True), inputs))
        got = [both(lambda *t: flash_attn_func(*t, causal=True, window_size=(5, 0)), inputs) for _ in range(3)]
        with python_only():
            self.equal(got[2], both(lambda *t: flash_attn_func(*t, causal=True, window_size=(5, 0)), inputs))

    def test_nothing_of_ours_in_python_runs_but_the_door(self):
        for device, dtype in itertools.product(DEVICES, (torch.float32, torch.bfloat16)):
            if (device, dtype) == ("cuda", torch.float32):
                continue  # tf32 may be switched between calls
            q, k, v = tensors(device, dtype)
            up = torch.randn_like(q)
            for _ in range(3):
                names = entered(lambda q=q, k=k, v=v, up=up: torch.autograd.grad(ht.attention(q, k, v, is_causal=True), [q, k, v], up))
            self.assertEqual(names, ["attention"])

    def test_a_call_that_differs_in_anything_is_another_call(self):
        q, k, v = tensors(kv_heads=4, len_k=33, grad=False)
        long = [x.repeat(1, 1, 2, 1) for x in (q, k, v)]
        calls_ = [
            ((q, k, v), {}), ((q, k, v), {"is_causal": True}), ((q, k, v), {"window": 4}), ((q, k, v), {"window": (4, 1)}), ((q, k, v), {"scale": 0.5}),
            ((q, k, v), {"softcap": 1.0}), ((q, k, v), {"layout": "blhd"}), ((q, k, v), {"window": 4, "align": "bottom-right"}),
            ((q.half(), k.half(), v.half()), {}), (long, {}), ([x[:, :, ::2] for x in long], {}), ((q, k[:, :2], v[:, :2]), {}),
        ]  # fmt: skip
        with python_only():
            want = [ht.attention(*t, **o) for t, o in calls_]
        for _ in range(3):
            for (t, o), w in zip(calls_, want):
                self.equal([ht.attention(*t, **o)], [w])

    def test_what_was_refused_is_refused_after_a_call_like_it(self):
        q, k, v = tensors(kv_heads=4, grad=False)
        for _ in range(3):
            ht.attention(q, k, v, is_causal=True)
            ht.attention(q, k, v, window=(4, 1))
            ht.attention(q, k, v, window=1)
        with self.assertRaisesRegex(TypeError, "is_causal is a int"):
            ht.attention(q, k, v, is_causal=1)
        with self.assertRaisesRegex(TypeError, "window is"):
            ht.attention(q, k, v, window=(4, True))
        with self.assertRaisesRegex(TypeError, "window is True"):
            ht.attention(q, k, v, window=True)
        with self.assertRaisesRegex(TypeError, "k is torch.float64"):
            ht.attention(q, k.double(), v, is_causal=True)
        with self.assertRaisesRegex(TypeError, "dropout_p is a bool"):
            ht.attention(q, k, v, None, False, True)

    def test_what_may_change_is_not_kept(self):
        q, k, v = tensors(kv_heads=4, grad=False)
        window = torch.tensor(3)
        for _ in range(3):
            ht.attention(q, k, v, window=window)
        window += 5
        self.equal([ht.attention(q, k, v, window=window)], [ht.attention(q, k, v, window=8)])

    def test_gradients_that_python_has_to_put_in_order(self):
        q, k, v = tensors()
        for _ in range(2):
            ht.attention(q, k, v)
        up = torch.randn(2, 4, 33, 16)
        ups = (torch.ones(()).expand(2, 4, 33, 16), up.transpose(1, 2).contiguous().transpose(1, 2), up.transpose(2, 3).contiguous().transpose(2, 3), up)
        for u in (*ups, *ups):
            with python_only():
                want = both(ht.attention, (q, k, v), u)
            self.equal(both(ht.attention, (q, k, v), u), want)

    def test_lse_and_none_as_gradients(self):
        q, k, v = tensors()

        def f(which):
            o, lse = ht.attention(q, k, v, return_lse=True)
            return torch.autograd.grad([(o, lse)[i].square().sum() for i in which], [q, k, v])

        for which in ((0,), (1,), (0, 1)):
            with python_only():
                want = f(which)
            for _ in range(3):
                self.equal(f(which), want)

    def test_second_derivatives_are_refused_in_the_same_words(self):
        q, k, v = tensors()
        for _ in range(3):
            o = ht.attention(q, k, v)
        (g,) = torch.autograd.grad(o.sum(), [q], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives of attention"):
            g.sum().backward()

    def test_a_graph_that_was_freed_and_a_tensor_that_was_changed(self):
        q, k, v = (x.detach() * 1 for x in tensors())
        q.requires_grad_()
        for _ in range(3):
            o = ht.attention(q, k, v)
        o.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "second time"):
            o.sum().backward()
        o = ht.attention(q, k, v)
        k += 1
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.sum().backward()

    def test_saved_tensors_that_come_back_in_another_order(self):
        q, k, v = tensors()
        up = torch.randn(2, 4, 33, 16)
        want = [both(ht.attention, (q, k, v), up) for _ in range(3)][2]
        packs = (lambda t: t.transpose(-1, -2).contiguous(), lambda t: t.transpose(-1, -2)), (lambda t: t.clone(), lambda t: t)
        for pack, unpack in (*packs, *packs):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                self.equal(both(ht.attention, (q, k, v), up), want)

    def test_code_that_listens_to_operators_hears_ours(self):
        from torch.utils.flop_counter import FlopCounterMode

        q, k, v = tensors(grad=False)
        for _ in range(3):
            ht.attention(q, k, v)
        with FlopCounterMode(display=False) as counter:
            ht.attention(q, k, v)
        self.assertGreater(counter.get_total_flops(), 0)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(ht.attention(q, k, v).dtype, torch.bfloat16)
        mapped = torch.func.vmap(lambda *t: ht.attention(*t))(*(x[:, None] for x in (q, k, v)))
        self.near(mapped[:, 0], ht.attention(q, k, v), torch.float32)

    def test_a_word_for_fixed_bits_and_a_number_of_threads_are_heard(self):
        q, k, v = tensors(grad=False)
        threads = torch.get_num_threads()
        for _ in range(2):
            ht.attention(q, k, v)
        try:
            with mock.patch.object(direct, "call_of", side_effect=direct.call_of) as made:
                torch.set_num_threads(threads + 1)
                ht.attention(q, k, v)
                self.assertGreater(made.call_count, 0)
                made.reset_mock()
                torch.use_deterministic_algorithms(True)
                ht.attention(q, k, v)
                self.assertGreater(made.call_count, 0)
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(False)

    def test_subclasses_and_parameters(self):
        class Mine(torch.Tensor):
            pass

        q, k, v = tensors(grad=False)
        want = [ht.attention(q, k, v) for _ in range(3)][2]
        self.assertIs(type(ht.attention(q.as_subclass(Mine), k, v)), Mine)
        parameter = torch.nn.Parameter(q)
        o = ht.attention(parameter, k, v)
        self.equal([o.detach()], [want])
        o.sum().backward()
        self.assertEqual(parameter.grad.shape, q.shape)

    def test_the_librarys_refusals_have_their_type_and_words(self):
        q, k, v = tensors(kv_heads=4, len_q=40)
        asked = "a call of this test", 1

        def kept(workspace):
            options = ht.functions.options_of(False, None, None, "top-left", "bhld", None, False, None)
            call = calls._Call(calls._context("cpu", 1), q.device, ((2, 4, 40, 16), (2, 4, 40, 16)), q.dtype, (0, False, 0, 0, 0.0, None, "", False, 0.0, False),
                               True, False, (False, 0, 0, False), 0)  # fmt: skip
            for which, size in enumerate(workspace):
                call.workspace[which] = size if size is not None else call.workspace[which]
            ready = call.make_ready_forward((q.stride(), k.stride(), v.stride()), q, k, v, *[None] * calls.MORE)
            quick.keep((call, ready, options), q, k, v, (*asked, *map(str, workspace)))
            return quick.attend(q, k, v, False, (*asked, *map(str, workspace)))

        with self.assertRaisesRegex(hr.Error, "workspace") as refused:
            kept((0, None))
        self.assertEqual(refused.exception.status, "out_of_memory")
        o = kept((None, 0))
        with self.assertRaisesRegex(hr.Error, "workspace") as refused:
            o.sum().backward()
        self.assertEqual(refused.exception.status, "out_of_memory")

    def test_more_forms_than_are_kept(self):
        q, k, v = tensors(len_q=1, len_k=1, kv_heads=4, grad=False)
        for i in range(40):  # alike but for a number
            self.equal([ht.attention(q, k, v, scale=1.0 + i)], [ht.attention(q, k, v, scale=1.0 + i)])
        want = ht.attention(q, k, v)
        call, ready, options = next(x for x in direct.known.values() if x[0].device.type == "cpu")
        for i in range(4200):
            x = torch.empty(1, 1, 1 + i, 1)
            quick.keep((call, ready, options), x, x, x, ("many", i))
        for _ in range(3):
            self.equal([ht.attention(q, k, v)], [want])

    def test_nothing_is_left_behind(self):
        q, k, v = tensors()
        up = torch.randn(2, 4, 33, 16)

        def some():
            for _ in range(400):
                o, lse = ht.attention(q, k, v, return_lse=True)
                torch.autograd.grad(o, [q, k, v], up)
                ht.attention(q, k, v, is_causal=True).sum().backward()
                with torch.no_grad():
                    ht.attention(q, k, v, is_causal=True)
            q.grad = k.grad = v.grad = None
            gc.collect()

        for _ in range(3):
            some()
        counts = [sys.getrefcount(x) for x in (None, True, False, torch.empty_like)]
        blocks = sys.getallocatedblocks()
        some()
        self.assertLess(sys.getallocatedblocks() - blocks, 300)
        for x, before in zip((None, True, False, torch.empty_like), counts):
            self.assertLess(abs(sys.getrefcount(x) - before), 300)
        o = ht.attention(q, k, v)
        seen = weakref.ref(o), weakref.ref(o.grad_fn)
        del o
        self.assertEqual([x() for x in seen], [None, None])

    def test_a_graph_is_captured_and_the_current_stream_is_used(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors("cuda", torch.bfloat16, len_q=2048, len_k=2048, dim=64)
        up = torch.randn_like(q)

        def step(q):
            return both(lambda *t: ht.attention(*t, is_causal=True, deterministic=True), (q, k, v), up)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            want = [step(q) for _ in range(3)][2]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = step(q)
        graph.replay()
        torch.cuda.synchronize()
        self.equal(got, want)
        with torch.cuda.stream(side):
            late = q.detach() * 0
            torch.cuda._sleep(100_000_000)
            late += q.detach()
            got = step(late.requires_grad_())
        side.synchronize()
        self.equal(got, want)

    def test_memory_that_is_not_there_is_torchs_own_error(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors("cuda", torch.bfloat16, batch=1, len_q=4096, len_k=4096, dim=64)
        up = torch.randn_like(q)
        for _ in range(3):
            o = ht.attention(q, k, v)
            torch.autograd.grad(o, [q, k, v], up, retain_graph=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-6)
        try:
            for call in (lambda: ht.attention(q, k, v), lambda: torch.autograd.grad(o, [q, k, v], up, retain_graph=True)):
                held = []
                with self.assertRaises(torch.OutOfMemoryError):
                    while True:
                        held.append(call())
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    def test_without_the_exchange_interface_python_does_it(self):
        q, k, v = tensors()
        want = both(ht.attention, (q, k, v))
        with python_only(), mock.patch.object(torch.Tensor, "__dlpack_c_exchange_api__", None):
            quick.set_up(direct._general_backward)
            self.assertIsNone(quick.attend)
            self.equal(both(ht.attention, (q, k, v)), want)


if __name__ == "__main__":
    unittest.main()
