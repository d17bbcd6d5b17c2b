"""Attention as an operator of torch: its schema, torch.compile, fake tensors, streams and graphs."""

import itertools
import math
import sys
import unittest

from torch_cases import DEVICES, Base, tensors, torch

import gpu_headroom as hr
import gpu_headroom.torch as ht


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
                    torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, k, v, *with_, None, None, None, *options))
                    held = [x if x is None else x.detach() for x in (q, k, v, *with_)]
                    o, lse = torch.ops.headroom.attention_forward(*held, None, None, None, *options)
                    backward = (torch.randn_like(o), None, *held[:3], o, lse, *held[3:], None, None, *options)
                    torch.library.opcheck(torch.ops.headroom.attention_backward.default, backward)
                seed, slopes, dropped = torch.tensor([5, 6], device=device), torch.rand(4, device=device), (*options, 0, 0.25)
                torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, k, v, None, None, None, None, seed, slopes, *dropped))
                o, lse = torch.ops.headroom.attention_forward(*held[:3], None, None, None, None, seed, slopes, *dropped)
                backward = (torch.randn_like(o), None, *held[:3], o, lse, None, None, None, seed, slopes, *dropped)
                torch.library.opcheck(torch.ops.headroom.attention_backward.default, backward)
            q = tensors(device, len_q=2, grad=False)[0]
            pages, table = torch.randn(6, 2, 8, 16, device=device), torch.tensor([[0, 3], [5, 1]], dtype=torch.int32, device=device)
            options = (1, False, 0, 0, 0.0, None, True, "", False, 0)
            torch.library.opcheck(torch.ops.headroom.attention_forward.default, (q, pages, pages + 1, None, None, None, table, None, None, *options))

    def test_small_tensors_of_wrong_shapes_are_refused_after_right_ones_too(self):
        q, k, v = tensors(grad=False)
        options = (1, False, 0, 0, 0.0, None, True, "", False, 0)
        forward, backward = torch.ops.headroom.attention_forward, torch.ops.headroom.attention_backward
        cu = torch.tensor([[0, 9, 33], [0, 0, 33]], dtype=torch.int32)
        for at, name, right, wrong in (
            (0, "sink", torch.rand(4), torch.rand(3)),
            (5, "alibi", torch.rand(4), torch.rand(1)),
            (5, "alibi", torch.rand(2, 4), torch.rand(1, 4)),
            (2, "cu_k", cu, cu[:1]),
        ):
            with_ = [None] * 6
            with_[1] = with_[2] = cu if name == "cu_k" else None
            with_[at] = right
            o, lse = forward(q, k, v, *with_, *options)
            made = with_[:3] + with_[4:]
            backward(o, None, q, k, v, o, lse, *made, *options)
            with_[at] = wrong
            made = with_[:3] + with_[4:]
            with self.assertRaisesRegex(hr.Error, f"{name.replace('cu_', 'cu_seqlens_')} is .*, expected"):
                forward(q, k, v, *with_, *options)
            with self.assertRaisesRegex(hr.Error, f"{name.replace('cu_', 'cu_seqlens_')} is .*, expected"):
                backward(o, None, q, k, v, o, lse, *made, *options)
        right, wrong = torch.tensor([5, 6]), torch.tensor([5])
        forward(q, k, v, None, None, None, None, right, None, *options, 0, 0.25)
        with self.assertRaisesRegex(ValueError, r"random is torch.int64 \(1,\), it must be torch.int64 \(2,\)"):
            forward(q, k, v, None, None, None, None, wrong, None, *options, 0, 0.25)

    def test_what_nothing_checked_before_is_refused_by_the_operators(self):
        """After a right call of the same strides too, by which calls are kept: it would read these as that one's."""
        q, k, v = tensors(grad=False)
        sink, slopes = torch.rand(4), torch.rand(4)
        cu = torch.tensor([[0, 9, 33], [0, 0, 33]], dtype=torch.int32)
        options = (1, False, 0, 0, 0.0, None, True, "", False, 0)
        forward, backward = torch.ops.headroom.attention_forward, torch.ops.headroom.attention_backward
        short = torch.zeros(k.shape).as_strided((*k.shape[:2], 4, k.shape[3]), k.stride())
        given = {"q": q, "k": k, "v": v, "sink": sink, "cu_seqlens_q": cu, "cu_seqlens_k": cu, "pages": None, "random": None, "alibi": slopes}
        o, lse = forward(*given.values(), *options)
        more = {"d_o": torch.ones_like(o), "dlse": torch.ones_like(lse), "q": q, "k": k, "v": v, "o": o, "lse": lse}
        given_back = {**more, **{name: t for name, t in given.items() if name not in (*more, "pages")}}
        backward(*given_back.values(), *options)
        both = (
            ("alibi", slopes.double(), "alibi is torch.float64"),
            ("alibi", slopes.long(), "alibi is torch.int64"),
            ("alibi", slopes.half(), "alibi is torch.float16"),
            ("alibi", slopes[0], r"alibi is torch.float32 \(\)"),
            ("sink", sink.double(), "sink is torch.float64"),
            ("sink", sink.bool(), "sink is torch.bool"),
            ("cu_seqlens_q", cu.long(), r"cu_seqlens_q is torch.int64 .* it must be torch.int32 of 2 dimensions"),
            ("cu_seqlens_q", cu[0], r"cu_seqlens_q is torch.int32 \(3,\)"),
            ("cu_seqlens_k", cu.float(), "cu_seqlens_k is torch.float32"),
            ("q", q.double(), "q is torch.float64: served are"),
            ("q", q[0], "q has 3 dimensions"),
            ("k", k.bfloat16(), "k is torch.bfloat16, q is torch.float32"),
            ("v", short, "all but head_dim must agree"),
            ("alibi", slopes * math.inf, "alibi has the slope inf, it must be finite"),
            ("alibi", slopes * math.nan, "alibi has the slope nan, it must be finite"),
        )
        for name, wrong, said in (*both, ("pages", cu.float(), "pages is torch.float32")):
            with self.subTest("forward " + said), self.assertRaisesRegex((ValueError, TypeError, hr.Error), said):
                forward(*{**given, name: wrong}.values(), *options)
        for name, wrong, said in (
            *both,
            ("d_o", o.double(), "d_o is torch.float64"),
            ("d_o", o[:1], "d_o is "),
            ("o", o.bfloat16(), "o is torch.bfloat16"),
            ("lse", lse.double(), "lse is torch.float64"),
            ("lse", lse[:, :1], "lse is "),
            ("dlse", lse.double(), "dlse is torch.float64"),
        ):
            with self.subTest("backward " + said), self.assertRaisesRegex((ValueError, TypeError, hr.Error), said):
                backward(*{**given_back, name: wrong}.values(), *options)

    def test_a_table_of_pages_that_is_not_in_order(self):
        q = tensors(len_q=2, grad=False)[0]
        pages, table = torch.randn(6, 8, 2, 16), torch.tensor([[0, 9, 3, 9], [5, 9, 1, 9]], dtype=torch.int32)[:, ::2]
        call = lambda table: ht.attention_with_cache(q.transpose(1, 2), pages, pages, pages=table, layout="blhd")  # noqa: E731
        got = call(table)
        self.assertTrue(torch.equal(got, call(table.contiguous())))

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

    def test_compiled_autograd_without_graph_breaks(self):
        """Of calls that were made in eager mode, those that skip Python among them."""
        from torch._dynamo import compiled_autograd

        if not hasattr(compiled_autograd, "_enable"):
            self.skipTest("this torch has no such switch")
        for device in DEVICES:
            for options in ({}, {"dropout_p": 0.25, "seed": torch.tensor([3, 4], device=device)}, {"sink": torch.rand(4, device=device)}):
                torch._dynamo.reset()
                for seed in range(3):
                    q, k, v = tensors(device, seed=seed)
                    want = torch.autograd.grad(ht.attention(q, k, v, is_causal=True, **options).sum(), [q, k, v])
                    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="aot_eager", fullgraph=True)):
                        ht.attention(q, k, v, is_causal=True, **options).sum().backward()
                    for t, w in zip((q, k, v), want):
                        self.near(t.grad, w, torch.float32)

    def test_functionalized(self):
        q, k, v = tensors()
        call = lambda q, k, v: ht.attention(q, k, v, is_causal=True)  # noqa: E731
        got = torch.func.functionalize(call)(q, k, v)
        self.near(got, call(q, k, v), torch.float32)
        for g, w in zip(torch.autograd.grad(got.sum(), [q, k, v]), torch.autograd.grad(call(q, k, v).sum(), [q, k, v])):
            self.near(g, w, torch.float32)
        with self.assertRaisesRegex(NotImplementedError, "where torch.func.functionalize is asked for gradients"):
            torch.func.functionalize(torch.func.grad(lambda q: call(q, k.detach(), v.detach()).sum()))(q.detach())

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

    def test_gradients_of_several_results_at_once(self):
        for options in ({}, {"sink": torch.rand(4)}, {"dropout_p": 0.25, "seed": torch.tensor([3, 4])}):
            for _ in range(2):  # the second call is one that was made before
                q, k, v = tensors()
                made = ht.attention(q, k, v, is_causal=True, return_lse=True, **options)
                ups = [torch.randn(3, *t.shape) for t in made]
                for outputs, up in ((made, ups), (made[:1], ups[:1]), (made[1:], ups[1:])):
                    got = torch.autograd.grad(outputs, (q, k, v), up, retain_graph=True, is_grads_batched=True, allow_unused=True)
                    for i in range(3):
                        want = torch.autograd.grad(outputs, (q, k, v), [u[i] for u in up], retain_graph=True, allow_unused=True)
                        for g, w in zip(got, want):
                            self.near(g[i], w, torch.float32)

    def test_a_mode_that_listens_to_backward_alone(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        heard = []

        class Listen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                heard.append(function)
                return function(*arguments, **(named or {}))

        for options in ({}, {"sink": torch.rand(4)}):
            for _ in range(3):  # as often as it takes to be known everywhere
                q, k, v = tensors()
                o = ht.attention(q, k, v, is_causal=True, **options)
                want = torch.autograd.grad(o.sum(), (q, k, v), retain_graph=True)
                heard.clear()
                with Listen():
                    got = torch.autograd.grad(o.sum(), (q, k, v))
                self.assertEqual(heard.count(torch.ops.headroom.attention_backward.default), 1)
                for g, w in zip(got, want):
                    self.assertTrue(torch.equal(g, w))

    def test_symbolic_traces(self):
        """torch.fx has proxies in the place of tensors."""
        from gpu_headroom.torch import flash_attn

        class Model(torch.nn.Module):
            def forward(self, q, k, v, cu, n):
                o, lse = ht.attention(q, k, v, is_causal=True, scale=0.5, window=None, return_lse=True)
                packed = ht.attention_varlen(q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), cu, is_causal=True)
                turned = flash_attn.flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)
                return o, lse, packed, turned, ht.attention_with_cache(q[:, :, :1], k, v, n)

        q, k, v = tensors(len_k=33, grad=False)
        cu, n = torch.tensor([0, 9, 33], dtype=torch.int32), torch.tensor([20, 33])
        traced = torch.fx.symbolic_trace(Model())
        self.assertEqual([node.target for node in traced.graph.nodes].count(ht.attention), 2)
        for got, want in zip(traced(q, k, v, cu, n), Model()(q, k, v, cu, n)):
            self.assertTrue(torch.equal(got, want))

    def test_zeros_without_memory(self):
        """Autograd makes some: torch's ZeroTensor."""
        for device in DEVICES:
            q, k, v = tensors(device)
            for given in (None, 0, 2):
                for _ in range(3):  # as often as it takes to be known everywhere
                    zero = torch._efficientzerotensor((q, k, v)[given or 0].shape, device=device)
                    with_zeros = [zero if at == given else t for at, t in enumerate((q, k, v))]
                    plain = [torch.zeros_like(t) if at == given else t for at, t in enumerate((q, k, v))]
                    o, lse = ht.attention(*with_zeros, is_causal=True, return_lse=True)
                    want = ht.attention(*plain, is_causal=True)
                    self.assertTrue(torch.equal(o, want))
                    up, no = torch._efficientzerotensor(o.shape, device=device), torch._efficientzerotensor(lse.shape, device=device)
                    for made, ups in (([o], [up]), ([o, lse], [o.detach(), no]), ([o, lse], [up, no])):
                        got = torch.autograd.grad(made, [k], ups, retain_graph=True)[0]
                        want = torch.autograd.grad(made, [k], [u + torch.zeros(1, device=device) for u in ups], retain_graph=True)[0]
                        self.assertTrue(torch.equal(got, want))

    def test_gradients_of_lse_where_there_is_one_row(self):
        """Torch takes any strides of dimensions of one as contiguous."""
        for device in DEVICES:
            q, k, v = tensors(device, batch=1, heads=1, kv_heads=1, len_q=1)
            for _ in range(3):  # as often as it takes to be known everywhere
                lse = ht.attention(q, k, v, return_lse=True)[1]
                want = torch.autograd.grad(lse, q, torch.ones_like(lse), retain_graph=True)[0]
                self.assertTrue(torch.equal(torch.autograd.grad(lse.sum(), q, retain_graph=True)[0], want))
                odd = torch.ones(3, 5, 7, device=device)[:1, :1, :1]
                self.assertTrue(torch.equal(torch.autograd.grad(lse, q, odd)[0], want))
            options = (1, True, 0, 0, 0.0, None, True, "", False, 0)
            given = [x.detach() for x in (q, k, v)]
            o, lse = torch.ops.headroom.attention_forward(*given, *[None] * 6, *options)
            torch.library.opcheck(torch.ops.headroom.attention_backward.default, (o + 1, odd, *given, o, lse, *[None] * 5, *options))

    def test_vmap_is_one_call(self):
        """Of each pass; as many as there are samples where what a row gets depends on its place in the batch, or a sink's gradient is each sample's own."""
        from torch.func import grad, vmap
        from torch.utils._python_dispatch import TorchDispatchMode

        heard = []

        class Listen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                heard.append(function)
                return function(*arguments, **(named or {}))

        n, cu = 3, torch.tensor([[0, 9, 33], [0, 0, 33]], dtype=torch.int32)
        for device, (options, mapped, calls) in itertools.product(
            DEVICES,
            (
                ({"is_causal": True}, {}, (1, 1)),
                ({"alibi_slopes": torch.rand(4)}, {}, (1, 1)),
                ({}, {"alibi_slopes": torch.rand(n, 4)}, (1, 1)),
                ({}, {"alibi_slopes": torch.rand(n, 2, 4), "cu_seqlens_q": torch.stack([cu] * n)}, (1, 1)),
                ({"sink": torch.rand(4)}, {}, (1, n)),
                ({}, {"sink": torch.rand(n, 4)}, (n, n)),
                ({"dropout_p": 0.25, "seed": torch.tensor([3, 4])}, {}, (n, n)),
            ),
        ):
            put = lambda t: t.to(device) if isinstance(t, torch.Tensor) else t  # noqa: B023, E731
            options, names, mapped = {name: put(t) for name, t in options.items()}, list(mapped), [put(t) for t in mapped.values()]
            q, k, v = (torch.stack([t + i for i in range(n)], at) for t, at in zip(tensors(device, len_k=33, grad=False), (0, 2, 4)))

            def loss(q, k, v, *more):
                o, lse = ht.attention(q, k, v, return_lse=True, **options, **dict(zip(names, more)))  # noqa: B023
                return o.sin().sum() + lse.cos().sum()

            heard.clear()
            with Listen():
                got = vmap(grad(loss, argnums=(0, 1, 2)), in_dims=(0, 2, 4, *[0] * len(names)))(q, k, v, *mapped)
            ops = torch.ops.headroom
            self.assertEqual(tuple(heard.count(op.default) for op in (ops.attention_forward, ops.attention_backward)), calls, (options, names))
            each = [grad(loss, argnums=(0, 1, 2))(q[i], k.select(2, i), v.select(4, i), *[t[i] for t in mapped]) for i in range(n)]
            for g, w in zip(got, zip(*each)):
                self.near(g, torch.stack(w), torch.float32)
        pages, table = torch.randn(6, 2, 8, 16, device=device), torch.tensor([[0, 3], [5, 1]], dtype=torch.int32, device=device)
        q, tables = torch.randn(n, 2, 4, 3, 16, device=device), torch.stack([table, table.flip(0), table + 0])
        call = lambda q, table: ht.attention_with_cache(q, pages, pages + 1, 13, table)  # noqa: E731
        self.near(vmap(call)(q, tables), torch.stack([call(*one) for one in zip(q, tables)]), torch.float32)

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
