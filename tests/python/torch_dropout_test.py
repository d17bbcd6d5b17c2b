"""Dropout of gpu_headroom.torch: which probabilities are dropped, gradients under the same mask, torch's generator and CUDA graphs."""

import itertools
import unittest

from torch_cases import DEVICES, TOLERANCE, Base, reference, tensors, torch, visible

import gpu_headroom as hr
import gpu_headroom.torch as ht
from draws import kept


class DropoutTest(Base):
    @staticmethod
    def masked(q, k, v, p, seed, seen=None):
        """Attention in FP64 under our mask, and what is differentiated."""
        q, k, v = (x.detach().double().cpu().requires_grad_() for x in (q, k, v))
        s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * q.shape[-1] ** -0.5
        if seen is not None:
            s = s.masked_fill(~seen, -torch.inf)
        factors = torch.from_numpy(kept(*seed.tolist(), p, *s.shape))
        return (torch.softmax(s, -1) * factors) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1), (q, k, v)

    def test_the_documented_mask_forward_and_backward(self):
        for device, dtype, (p, mask, options) in itertools.product(DEVICES, TOLERANCE, (
            (0.1, None, {}), (0.5, "causal", {}), (0.25, "causal", {"layout": "blhd"}), (0.9, "window", {"deterministic": True}),
        )):  # fmt: skip
            with self.subTest(device=device, dtype=dtype, p=p, mask=mask):
                q, k, v = tensors(device, dtype, len_q=70, len_k=70, dim=24)
                seed = torch.tensor([3 - (1 << 60), 1 << 40], device=device)
                asked = {None: {}, "causal": {"is_causal": True}, "window": {"window": 9}}[mask]
                want, (dq, dk, dv) = self.masked(q, k, v, p, seed, None if mask is None else visible(70, 70, **asked))
                given = [x.transpose(1, 2) for x in (q, k, v)] if "layout" in options else (q, k, v)
                o, lse = ht.attention(*given, dropout_p=p, seed=seed, return_lse=True, **asked, **options)
                self.near(lse, reference(q, k, v, **asked)[1], dtype, "LSE does not know of dropout")
                d_o = torch.randn(want.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
                want.backward(d_o)
                up = d_o.to(device, dtype)
                self.near(o.transpose(1, 2) if "layout" in options else o, want, dtype)
                o.backward(up.transpose(1, 2) if "layout" in options else up)
                for got, exact in ((q, dq), (k, dk), (v, dv)):
                    self.near(got.grad, exact.grad, dtype)
                if "layout" not in options:
                    made = ht.attention_backward(up, q.detach(), k.detach(), v.detach(), o.detach(), lse.detach(), dropout_p=p, seed=seed, **asked, **options)
                    for got, exact in zip(made, (dq, dk, dv)):
                        self.near(got, exact.grad, dtype)
        with self.assertRaisesRegex(ValueError, "dropout_p needs the seed"):
            ht.attention_backward(up, q, k, v, o, lse, dropout_p=0.5)

    def test_seeds_are_drawn_from_torchs_generator(self):
        F = torch.nn.functional
        for device in DEVICES:
            q, k, v = tensors(device, heads=2)

            def both(function):
                for t in (q, k, v):  # noqa: B023
                    t.grad = None
                o = function(q, k, v, dropout_p=0.3)  # noqa: B023
                o.sum().backward()
                return [o.detach()] + [t.grad for t in (q, k, v)]  # noqa: B023

            torch.manual_seed(5)
            first, second = both(ht.attention), both(ht.attention)
            torch.manual_seed(5)
            again = both(ht.attention)
            torch.manual_seed(5)
            with ht.replace_sdpa() as seen:
                replaced = both(F.scaled_dot_product_attention)
            self.assertEqual((seen.served, dict(seen.left)), (1, {}), seen.explain())
            for a, b, c, d in zip(first, again, replaced, second):
                self.assertTrue(torch.equal(a, b) and torch.equal(a, c))
                self.assertFalse(torch.equal(a, d))
            state = torch.get_rng_state()
            self.assertTrue(torch.equal(ht.attention(q, k, v), ht.attention(q, k, v, dropout_p=0.0)))
            self.assertTrue(torch.equal(state, torch.get_rng_state()), "without dropout nothing is drawn")
            ht.attention(q, k, v, dropout_p=0.3, seed=torch.tensor([1, 2], device=device))
            self.assertTrue(torch.equal(state, torch.get_rng_state()), "with a seed nothing is drawn")

    def test_the_mean_stays(self):
        for device in DEVICES:
            q, k, v = tensors(device, heads=2, grad=False)
            want, all_of = ht.attention(q, k, v, is_causal=True), []
            torch.manual_seed(0)
            with ht.replace_sdpa():
                for _ in range(400):
                    all_of.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2))
            all_of = torch.stack(all_of).double()
            errors = (all_of.mean(0) - want) / (all_of.std(0) / 20)
            self.assertAlmostEqual((errors**2).mean().item(), 1, delta=0.3)

    def test_recomputed_layers_drop_the_same(self):
        from torch.utils.checkpoint import checkpoint

        for device, reentrant in itertools.product(DEVICES, (False, True)):
            q, k, v = tensors(device, heads=2)
            grads = []
            for how in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=reentrant)):  # noqa: B023
                torch.manual_seed(3)
                for t in (q, k, v):
                    t.grad = None
                how(lambda q, k, v: ht.attention(q, k, v, dropout_p=0.5), q, k, v).square().sum().backward()
                grads.append([t.grad for t in (q, k, v)])
            for a, b in zip(*grads):
                self.assertTrue(torch.equal(a, b))

    def test_compiled(self):
        for device in DEVICES:
            q, k, v = tensors(device, heads=2)
            for function in (lambda *x: ht.attention(*x, is_causal=True, dropout_p=0.5), lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, dropout_p=0.5)):
                with ht.replace_sdpa():
                    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
                    torch.manual_seed(1)
                    o = compiled(q, k, v)
                    o.sum().backward()
                    torch.manual_seed(1)
                    self.assertTrue(torch.equal(o, compiled(q, k, v)))
                    self.assertFalse(torch.equal(o, compiled(q, k, v)))
                torch._dynamo.reset()

    def test_in_a_cuda_graph_each_replay_draws_anew(self):
        if "cuda" not in DEVICES:
            self.skipTest("no CUDA device")
        q, k, v = tensors("cuda", torch.bfloat16, heads=2, len_q=128, len_k=128, dim=64)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            ht.attention(q, k, v, dropout_p=0.5).sum().backward()
        torch.cuda.current_stream().wait_stream(beside)
        for t in (q, k, v):
            t.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = ht.attention(q, k, v, dropout_p=0.5)
            grads = torch.autograd.grad(o.float().square().sum(), (q, k, v))
        seen = []
        for seed in (7, 7, 8):
            torch.cuda.manual_seed(seed)
            for _ in range(2):
                graph.replay()
                seen.append([o.clone(), *[g.clone() for g in grads]])
        for at in (0, 1):
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(seen[at], seen[at + 2])), "the same seed, the same bits")
        for a, b in ((0, 1), (0, 4), (1, 5)):
            self.assertFalse(torch.equal(seen[a][0], seen[b][0]), "another replay or seed, another mask")

    def test_transforms(self):
        q, k, v = (torch.randn(3, 2, 2, 9, 8) for _ in range(3))

        def f(*x):
            return ht.attention(*x, dropout_p=0.5)

        with self.assertRaisesRegex(RuntimeError, "vmap: called random operation"):
            torch.vmap(f)(q, k, v)
        o = torch.vmap(f, randomness="different")(q, k, v)
        self.assertEqual(o.shape, q.shape)
        same = torch.vmap(f, randomness="same")(*[t[:1].expand(3, -1, -1, -1, -1) for t in (q, k, v)])
        self.assertTrue(torch.equal(same[0], same[1]))

    def test_arrays(self):
        q, k, v = (t.transpose(1, 2).numpy() for t in tensors(len_q=40, grad=False))
        r = hr.attention_forward(q, k, v, mask="causal", dropout=0.3, seed=11, offset=1 << 33)
        given = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        o = ht.attention(*given, is_causal=True, layout="blhd", dropout_p=0.3, seed=torch.tensor([11, 1 << 33]))
        self.assertTrue(torch.equal(torch.from_numpy(r.o.copy()), o))
        o.sum().backward()
        for got, t in zip(r.backward(torch.ones(r.o.shape).numpy()), given):
            self.assertTrue(torch.equal(torch.from_numpy(got.copy()), t.grad))
        for wrong, words in (({"dropout": 1.0}, "dropout is 1.0: a number, at least 0 and below 1"), ({"dropout": float("nan")}, "dropout is nan"),
                             ({"dropout": 0.1, "seed": -1}, "seed is -1")):  # fmt: skip
            with self.assertRaisesRegex(ValueError, words):
                hr.attention_forward(q, k, v, **wrong)


if __name__ == "__main__":
    unittest.main()
