"""replace_sdpa: a result has the strides that torch's would have."""

import itertools
import unittest

from torch_cases import DEVICES, FUSED, Base, tensors, torch

import gpu_headroom.torch as ht


class StridesTest(Base):
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


if __name__ == "__main__":
    unittest.main()
