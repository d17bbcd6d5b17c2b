"""Slopes of ALiBi in gpu_headroom.torch and under flash-attn's names, against torch's own attention in FP64 with the bias as a matrix."""

import unittest

from torch_cases import DEVICES, Base, packed, tensors, torch, visible

import gpu_headroom.torch as ht
from gpu_headroom.torch import flash_attn as fa


def distances(len_q, len_k, align="bottom-right"):
    row = torch.arange(len_q)[:, None] + (len_k - len_q if align == "bottom-right" else 0)
    return (row - torch.arange(len_k)[None]).abs().double()


def attend(q, k, v, fall, seen):
    """Of [batch, heads, len, dim] in FP64, scores less `fall`; a row that sees nothing gives 0."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 - fall
    s = s.masked_fill(~seen, -torch.inf)
    p = torch.exp(s - torch.where((lse := torch.logsumexp(s, -1)).isinf(), 0, lse)[..., None])
    return p @ v


class AlibiTest(Base):
    def check(self, call, inputs, fall, seen, dtype=torch.float32):
        """o and the gradients of call(q, k, v), all [batch, heads, len, dim]."""
        exact = [x.detach().double().cpu().requires_grad_() for x in inputs]
        want = attend(*exact, fall, seen)
        o = call(*inputs)
        self.near(o, want, dtype)
        up = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o.device, o.dtype)
        got = torch.autograd.grad(o, inputs, up)
        for name, g, w in zip("qkv", got, torch.autograd.grad(want, exact, up.double().cpu())):
            self.near(g, w, dtype, "d" + name)

    def test_slopes_of_heads_and_of_rows_of_the_batch(self):
        for device in DEVICES:
            for dtype in (torch.float32, torch.bfloat16):
                for slopes in (torch.tensor([0.5, 0.25, 0.1, 0.0]), torch.rand(2, 4, generator=torch.Generator().manual_seed(2))):
                    for align in ("top-left", "bottom-right"):
                        for causal in (False, True):
                            inputs = tensors(device, dtype)
                            fall = slopes.double().reshape(-1, 4, 1, 1) * distances(33, 40, align if causal else "bottom-right")
                            seen = visible(33, 40, causal, align=align)
                            self.check(
                                lambda q, k, v: ht.attention(q, k, v, is_causal=causal, align=align, alibi_slopes=slopes.to(device)),  # noqa: B023
                                inputs, fall, seen, dtype,
                            )  # fmt: skip

    def test_flash_attns_functions(self):
        for device in DEVICES:
            slopes = torch.rand(2, 4, generator=torch.Generator().manual_seed(3)).to(device)
            inputs = tensors(device)
            by_position = lambda f: lambda *x: f(*(t.transpose(1, 2) for t in x)).transpose(1, 2)  # noqa: E731
            seen = visible(33, 40, window=(12, 3), align="bottom-right")
            self.check(
                by_position(lambda q, k, v: fa.flash_attn_func(q, k, v, window_size=(11, 3), alibi_slopes=slopes)),  # noqa: B023
                inputs, slopes.double().cpu()[:, :, None, None] * distances(33, 40), seen,
            )  # fmt: skip
            ends_q, ends_k = [0, 9, 9, 33], [0, 12, 20, 40]
            cu_q, cu_k = (torch.tensor(x, dtype=torch.int32, device=device) for x in (ends_q, ends_k))
            of_documents = torch.rand(3, 4, generator=torch.Generator().manual_seed(4)).to(device)
            inputs = tensors(device, batch=1)
            for some in (slopes[0], of_documents):
                fall = torch.zeros(1, 4, 33, 40, dtype=torch.float64)
                for d, (q0, q1, k0, k1) in enumerate(zip(ends_q, ends_q[1:], ends_k, ends_k[1:])):
                    its = some if some.dim() == 1 else some[d]
                    fall[0, :, q0:q1, k0:k1] = its.double().cpu()[:, None, None] * distances(q1 - q0, k1 - k0)
                self.check(
                    lambda *x: fa.flash_attn_varlen_func(
                        *(t[0].transpose(0, 1) for t in x), cu_q, cu_k, 24, 20, causal=True, alibi_slopes=some  # noqa: B023
                    ).transpose(0, 1)[None],
                    inputs, fall, packed([ends_q], [ends_k], 33, 40, is_causal=True),
                )  # fmt: skip

    def test_a_cache(self):
        for device in DEVICES:
            q, k, v = (x.detach().transpose(1, 2) for x in tensors(device, len_q=3, len_k=64))
            slopes = torch.rand(2, 4, generator=torch.Generator().manual_seed(5)).to(device)
            lengths = torch.tensor([40, 61], dtype=torch.int32, device=device)
            want = []
            for b, length in enumerate(lengths.tolist()):
                fall = slopes[b].double().cpu()[:, None, None] * distances(3, length)
                exact = (x[b : b + 1].transpose(1, 2).double().cpu() for x in (q, k[:, :length], v[:, :length]))
                want.append(attend(*exact, fall, visible(3, length, True, align="bottom-right")).transpose(1, 2))
            o = fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True, alibi_slopes=slopes)
            self.near(o, torch.cat(want), torch.float32)
            pages = torch.arange(8, dtype=torch.int32, device=device).reshape(2, 4)
            in_pages = [x.reshape(8, 16, 2, 16) for x in (k, v)]
            self.near(fa.flash_attn_with_kvcache(q, *in_pages, cache_seqlens=lengths, block_table=pages, causal=True, alibi_slopes=slopes), o, torch.float32)
            cu_q = torch.tensor([0, 3, 6], dtype=torch.int32, device=device)
            cu_k = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
            packed_q = q.reshape(6, 4, 16)
            got = fa.flash_attn_varlen_func(packed_q, *in_pages, cu_q, cu_k, 3, 61, causal=True, alibi_slopes=slopes, block_table=pages)
            self.near(got.reshape(o.shape), o, torch.float32)
            for pad in (0, 7):  # where a sequence begins in the cache
                left = torch.full((2,), pad, dtype=torch.int32, device=device)
                o = fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, cache_leftpad=left, causal=True, alibi_slopes=slopes)
                own = fa.flash_attn_with_kvcache(q, k[:, pad:], v[:, pad:], cache_seqlens=lengths - pad, causal=True, alibi_slopes=slopes)
                self.near(o, own, torch.float32)

    def test_dropout_caps_and_sinks_beside_them(self):
        q, k, v = tensors()
        slopes, sink = torch.tensor([0.5, 0.25, 0.1, 0.0]), torch.randn(4, requires_grad=True)
        asked = dict(is_causal=True, alibi_slopes=slopes, softcap=3.0, sink=sink)
        seed = torch.tensor([5, 6])
        o = ht.attention(q, k, v, dropout_p=0.3, seed=seed, **asked)
        self.assertTrue(torch.equal(o, ht.attention(q, k, v, dropout_p=0.3, seed=seed, **asked)))
        self.assertFalse(torch.equal(o, ht.attention(q, k, v, **asked)))
        grads = torch.autograd.grad(o.sum(), (q, k, v, sink))
        o, lse = ht.attention(q, k, v, dropout_p=0.3, seed=seed, return_lse=True, **asked)
        made = ht.attention_backward(torch.ones_like(o), q, k, v, o, lse, dropout_p=0.3, seed=seed, **asked)
        for g, w in zip(made, grads):
            self.assertTrue(torch.equal(g, w))

    def test_compiled_and_in_torch_func(self):
        q, k, v = tensors()
        slopes = torch.rand(4)
        call = lambda q, k, v: ht.attention(q, k, v, is_causal=True, alibi_slopes=slopes)  # noqa: E731
        o = call(q, k, v)
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(q, k, v), o))
        made_inside = lambda q, k, v: ht.attention(q, k, v, is_causal=True, alibi_slopes=torch.tensor([0.5, 0.25, 0.1, 0.2]))  # noqa: E731
        dynamic = torch.compile(made_inside, fullgraph=True, dynamic=True, backend="aot_eager")
        for rows in (33, 17):
            given = [x[:, :, :rows] for x in (q, k, v)]
            self.near(dynamic(*given), made_inside(*given), torch.float32)
        of = torch.func.vjp(call, q, k, v)[1](torch.ones_like(o))
        for g, w in zip(of, torch.autograd.grad(o.sum(), (q, k, v))):
            self.assertTrue(torch.equal(g, w))
        torch.library.opcheck(
            torch.ops.headroom.attention_forward,
            (q, k, v, None, None, None, None, None, slopes, 1, False, 0, 0, 0.0, None, True, "", False, -1),
            test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"),
        )

    def test_what_is_refused(self):
        q, k, v = (x.detach() for x in tensors())
        for slopes, error, said in (
            (torch.ones(3), ValueError, r"alibi_slopes is \(3,\), it must be \(4,\) or \(2, 4\): a number for each head"),
            (torch.ones(4, 2), ValueError, r"alibi_slopes is \(4, 2\)"),
            (torch.ones(2, 3, 4), ValueError, r"alibi_slopes is \(2, 3, 4\)"),
            (torch.ones(4, dtype=torch.int64), TypeError, "alibi_slopes is torch.int64, it must be a tensor of floating-point numbers"),
            ([0.5] * 4, TypeError, "alibi_slopes is a list"),
            (torch.ones(4, requires_grad=True), ValueError, "alibi_slopes requires a gradient, which there is none of: pass alibi_slopes.detach()"),
        ):
            with self.assertRaisesRegex(error, said):
                ht.attention(q, k, v, alibi_slopes=slopes)
        with self.assertRaisesRegex(TypeError, "say alibi_slopes"):
            ht.attention(q, k, v, alibi=torch.ones(4))
        with self.assertRaisesRegex(ValueError, "alibi_slopes is nested or sparse"):
            ht.attention(q, k, v, alibi_slopes=torch.ones(4).to_sparse())
        packed_q, cu = torch.randn(6, 4, 16), torch.tensor([0, 2, 2, 6], dtype=torch.int32)
        pages, table = torch.randn(3, 4, 2, 16), torch.tensor([[0], [1], [2]], dtype=torch.int32)
        for paged in (False, True):
            k = pages if paged else pages.flatten(0, 1)[:6]
            for slopes in (torch.ones(5, 4), torch.ones(1, 4), torch.ones(3)):
                with self.assertRaisesRegex(ValueError, r"attention_varlen: alibi_slopes is \(.*\), it must be \(4,\) or \(3, 4\): a number for each head"):
                    fa.flash_attn_varlen_func(packed_q, k, k, cu, cu, 4, 4, alibi_slopes=slopes, block_table=table if paged else None)
            with self.assertRaisesRegex(TypeError, "attention_varlen: alibi_slopes is a list"):
                fa.flash_attn_varlen_func(packed_q, k, k, cu, cu, 4, 4, alibi_slopes=[0.5] * 4, block_table=table if paged else None)

    def test_what_is_taken_beside_float32_in_order(self):
        q, k, v = (x.detach() for x in tensors())
        slopes = torch.rand(4)
        o, lse = ht.attention(q, k, v, alibi_slopes=slopes, return_lse=True)
        backward = ht.attention_backward(o, q, k, v, o, lse, alibi_slopes=slopes)
        negative = torch._neg_view(-slopes)  # memory with the other sign, as x.conj().imag may have
        self.assertTrue(torch.equal(ht.attention(q, k, v, alibi_slopes=negative), o))
        for g, w in zip(ht.attention_backward(o, q, k, v, o, lse, alibi_slopes=negative), backward):
            self.assertTrue(torch.equal(g, w))
        self.assertTrue(torch.equal(ht.attention(q, k, v, alibi_slopes=torch.stack([slopes, slopes], 1)[:, 0]), o))
        cached = dict(lengths=torch.tensor([9, 40], dtype=torch.int32))
        self.assertTrue(
            torch.equal(
                ht.attention_with_cache(q[:, :, :1], k, v, **cached, alibi_slopes=negative, sink=negative),
                ht.attention_with_cache(q[:, :, :1], k, v, **cached, alibi_slopes=slopes, sink=slopes),
            )
        )
        each = torch.func.vmap(lambda s: ht.attention(q, k, v, alibi_slopes=s))(torch.stack([2 * slopes, slopes]))
        self.near(each[1], o, torch.float32)
        self.assertIn("flash: chosen", ht.explain(q, k, v, alibi_slopes=torch.ones(4)))
        self.assertTrue(torch.equal(ht.attention(q, k, v, alibi_slopes=torch.zeros(4, dtype=torch.float16)), ht.attention(q, k, v)))


if __name__ == "__main__":
    unittest.main()
