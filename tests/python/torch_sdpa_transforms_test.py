"""replace_sdpa: calls inside of torch.func's transforms, traces, scripts, and modes that listen."""

import itertools
import unittest

from torch_cases import Base, tensors, torch

import gpu_headroom.torch as ht


class TransformsTest(Base):
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


if __name__ == "__main__":
    unittest.main()
