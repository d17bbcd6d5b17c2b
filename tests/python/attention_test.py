"""The Python door against attention written with NumPy in FP64. Exit code 77 says: skipped, and why."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import gpu_headroom as hr
from attention_cases import attend, inputs


def reference(q, k, v, d_o, causal):
    q, k, v, d_o = (np.swapaxes(x.astype(np.float64), 1, 2) for x in (q, k, v, d_o))  # [batch, heads, len, dim]
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = 1 / np.sqrt(q.shape[-1])
    s = scale * q @ np.swapaxes(k, -1, -2)
    if causal:
        row, key = np.indices(s.shape[-2:])
        s = np.where(key <= row + s.shape[-1] - s.shape[-2], s, -np.inf)
    lse = np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1)) + s.max(-1)
    p = np.exp(s - lse[..., None])
    o = p @ v
    ds = p * (d_o @ np.swapaxes(v, -1, -2) - (d_o * o).sum(-1, keepdims=True)) * scale
    dq, dk, dv = ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ d_o
    dk, dv = (x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2) for x in (dk, dv))
    return [np.swapaxes(o, 1, 2), lse] + [np.swapaxes(x, 1, 2) for x in (dq, dk, dv)]


def dense(q, k, v, d_o, seen, sink=None, softcap=0.0, fall=0.0):
    """o, lse, dq, dk, dv and dsink in FP64 where seen[batch][row, key], of scores less `fall`; gradients by the chain rule, as above."""
    q, k, v, d_o = (np.swapaxes(x.astype(np.float64), 1, 2) for x in (q, k, v, d_o))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = 1 / np.sqrt(q.shape[-1])
    s = scale * q @ np.swapaxes(k, -1, -2)
    slope = 1.0
    if softcap:
        s, slope = softcap * np.tanh(s / softcap), 1 - np.tanh(s / softcap) ** 2
    e = np.where(seen[:, None], np.exp(s - fall), 0)
    logit = np.full(q.shape[1], -np.inf) if sink is None else sink.astype(np.float64)
    with np.errstate(divide="ignore"):
        lse = np.log(e.sum(-1) + np.exp(logit)[None, :, None])
    p = e / np.where(np.isinf(lse), 1, np.exp(lse))[..., None]
    o = p @ v
    delta = (d_o * o).sum(-1, keepdims=True)
    ds = p * (d_o @ np.swapaxes(v, -1, -2) - delta) * scale * slope
    dq, dk, dv = ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ d_o
    dk, dv = (x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2) for x in (dk, dv))
    out = [np.swapaxes(o, 1, 2), lse] + [np.swapaxes(x, 1, 2) for x in (dq, dk, dv)]
    share = np.exp(logit[None, :, None] - np.where(np.isinf(lse), 0, lse))
    return out if sink is None else [*out, -(share * delta[..., 0]).sum((0, 2))]


class AttentionTest(unittest.TestCase):
    def assert_near(self, got, want, tolerance):
        self.assertLess(np.abs(got.astype(np.float64) - want).max(), tolerance)

    def test_every_variant_agrees_with_fp64(self):
        q, k, v, d_o = inputs()
        want = reference(q, k, v, d_o, causal=True)
        for variant in ("plain", "flash"):
            for g, w in zip(attend(q, k, v, d_o, mask="causal", variant=variant), want):
                self.assert_near(g, w, 1e-4)

    def test_half_precision(self):
        q, k, v, d_o = inputs(np.float16)
        r = hr.attention_forward(q, k, v)
        self.assertEqual(r.o.dtype, np.float16)
        self.assert_near(r.o, reference(q, k, v, d_o, causal=False)[0], 5e-3)

    def test_bf16_as_its_bits(self):
        q, k, v, d_o = inputs()
        bits = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v, d_o)]
        rounded = [(b.astype(np.uint32) << 16).view(np.float32) for b in bits]
        o = attend(*bits)[0]
        self.assertEqual(o.dtype, np.uint16)
        self.assert_near((o.astype(np.uint32) << 16).view(np.float32), reference(*rounded, causal=False)[0], 5e-2)

    def test_in_fp8(self):
        q, k, v, d_o = inputs()
        bits = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v, d_o)]
        exact = reference(*[(b.astype(np.uint32) << 16).view(np.float32) for b in bits], causal=True)[0]
        r = hr.attention_forward(*bits[:3], mask="causal", quantise="fp8")
        o = (r.o.astype(np.uint32) << 16).view(np.float32)
        size = np.sqrt((exact**2).mean())
        self.assertLess(np.sqrt(((o - exact) ** 2).mean()), 0.08 * size)  # E4M3 has 3 bits after the first
        bf16 = (hr.attention_forward(*bits[:3], mask="causal").o.astype(np.uint32) << 16).view(np.float32)
        self.assertGreater(np.sqrt(((o - exact) ** 2).mean()), 2 * np.sqrt(((bf16 - exact) ** 2).mean()), "these were not 8 bits")
        with self.assertRaisesRegex(ValueError, "attention in fp8 has no backward: leave quantise out"):
            r.backward(bits[3])
        self.assertIn("flash_fp8: chosen", hr.explain(*bits[:3], quantise="fp8"))
        for error, words, options in (
            (TypeError, "quantise='fp8' takes bfloat16 and gives bfloat16, and q is float32", dict(quantise="fp8")),
            (ValueError, "quantise is 'fp4': 'fp8', or None for nothing", dict(quantise="fp4")),
            (TypeError, "quantise is a int: 'fp8', or None", dict(quantise=8)),
        ):
            with self.assertRaisesRegex(error, words):
                hr.attention_forward(q, k, v, **options)
        with self.assertRaisesRegex(hr.Error, "soft capping is not served"):
            hr.attention_forward(*bits[:3], softcap=30.0, quantise="fp8")

    def test_a_strided_view_is_read_in_place(self):
        q, k, v, _ = inputs()
        wide = np.zeros((2, 66, 4, 16), np.float32)
        wide[:, ::2] = q
        o = hr.attention_forward(q, k, v).o
        again = hr.attention_forward(wide[:, ::2], k, v).o
        self.assertTrue(np.array_equal(o, again))

    def test_a_gradient_that_is_one_number_repeated(self):  # what sum().backward() makes in torch
        q, k, v, d_o = inputs()
        for repeated in (np.broadcast_to(np.float32(0.5), d_o.shape), np.broadcast_to(d_o[:, :1], d_o.shape),
                         np.broadcast_to(d_o[..., :1], d_o.shape)):
            want = attend(q, k, v, np.ascontiguousarray(repeated))
            for g, w in zip(attend(q, k, v, repeated), want):
                self.assertTrue(np.array_equal(g, w))

    def test_reversed_and_transposed_views(self):
        q, k, v, d_o = inputs()
        want = attend(q, k, v, d_o)
        turned = [np.ascontiguousarray(np.swapaxes(x, 1, 3)) for x in (q, k, v, d_o)]
        for g, w in zip(attend(*[np.swapaxes(x, 1, 3) for x in turned]), want):
            self.assertTrue(np.array_equal(g, w))
        backwards = [np.ascontiguousarray(x[:, ::-1]) for x in (q, k, v, d_o)]
        for g, w in zip(attend(*[x[:, ::-1] for x in backwards]), want):
            self.assertTrue(np.array_equal(g, w))

    def test_whatever_speaks_array_or_dlpack(self):
        q, k, v, d_o = inputs()

        class Array:
            def __init__(self, x):
                self.__array_interface__, self.keep = x.__array_interface__, x

        class Capsule:
            def __init__(self, x):
                self.x = x

            def __dlpack__(self, **options):
                return self.x.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.x.__dlpack_device__()

        want = attend(q, k, v, d_o)
        for wrap in (Array, Capsule, memoryview):
            for g, w in zip(attend(wrap(q), wrap(k), wrap(v), wrap(d_o)), want):
                self.assertTrue(np.array_equal(g, w), wrap)

    def test_values_of_another_dimension_and_windows_to_both_sides(self):
        q, k, v, d_o = inputs()
        o, lse, *gradients = attend(q, k, v[..., :8], d_o[..., :8])
        want = attend(q, k, np.concatenate([v[..., :8], 0 * v[..., 8:]], -1), np.concatenate([d_o[..., :8], 0 * d_o[..., 8:]], -1))
        self.assert_near(o, want[0][..., :8], 1e-5)
        for g, w in zip(gradients, (want[2], want[3], want[4][..., :8])):
            self.assert_near(g, w, 1e-5)
        full = hr.attention_forward(q, k, v).o
        self.assert_near(hr.attention_forward(q, k, v, mask="window:40+40:top-left").o, full, 1e-5)
        self.assertGreater(np.abs(hr.attention_forward(q, k, v, mask="window:4+3").o - full).max(), 1e-2)
        self.assertGreater(np.abs(hr.attention_forward(q, k, v, softcap=0.5).o - full).max(), 1e-3)
        for mask in ("window:4+", "window:+4", "window:4+4+4", "window:0+4", "window:-1", "window", "full:3", "causal:3"):
            with self.assertRaisesRegex(ValueError, "mask '"):
                hr.attention_forward(q, k, v, mask=mask)

    def test_sinks_and_their_gradient(self):
        q, k, v, d_o = inputs()
        sink = np.array([0.5, -1, 2, 0], np.float32)
        seen = np.ones((2, 33, 40), bool)
        for variant in ("plain", "flash"):
            for g, w in zip(attend(q, k, v, d_o, sink=sink, variant=variant), dense(q, k, v, d_o, seen, sink)):
                self.assert_near(g, w, 1e-4)
        r = hr.attention_forward(q, k, v, sink=[0.5, -1, 2, 0], softcap=2.0)
        self.assertEqual([x.shape for x in r.backward(d_o)], [q.shape, k.shape, v.shape, (4,)])
        for g, w in zip([r.o, r.lse, *r.backward(d_o)], dense(q, k, v, d_o, seen, sink, softcap=2.0)):
            self.assert_near(g, w, 1e-4)

    def test_slopes_of_alibi(self):
        q, k, v, d_o = inputs()
        seen = np.ones((2, 33, 40), bool)
        apart = np.abs(np.arange(33)[:, None] + 7 - np.arange(40)[None])
        of_heads = np.array([0.5, 0.25, 0.1, 0], np.float32)
        of_batch = np.stack([of_heads, 2 * of_heads])
        for variant in ("plain", "flash"):
            for slopes in (of_heads, of_batch):
                want = dense(q, k, v, d_o, seen, fall=slopes.astype(np.float64).reshape(-1, 4, 1, 1) * apart)
                for g, w in zip(attend(q, k, v, d_o, alibi_slopes=slopes, variant=variant), want):
                    self.assert_near(g, w, 1e-4)
        new, rest = q[:, :2], dict(lengths=np.array([20, 40], np.int32), alibi_slopes=of_batch)
        o = hr.attention_with_cache(new, k, v, **rest).o
        for b, length in enumerate((20, 40)):
            alone = hr.attention_forward(new[b : b + 1], k[b : b + 1, :length], v[b : b + 1, :length], mask="causal", alibi_slopes=of_batch[b])
            self.assert_near(o[b : b + 1], alone.o, 1e-5)
        cu, cu_k = np.array([[0, 13, 33]] * 2, np.int32), np.array([[0, 10, 40]] * 2, np.int32)
        of_documents = np.stack([of_batch, 3 * of_batch])
        packed = hr.attention_forward(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu_k, alibi_slopes=of_documents).o
        for d, ((a, b), (c, e)) in enumerate((((0, 13), (0, 10)), ((13, 33), (10, 40)))):
            self.assert_near(packed[:, a:b], hr.attention_forward(q[:, a:b], k[:, c:e], v[:, c:e], alibi_slopes=of_documents[:, d].copy()).o, 1e-5)
        with self.assertRaisesRegex(ValueError, r"alibi_slopes has the shape \(3,\), expected \(4,\)"):
            hr.attention_forward(q, k, v, alibi_slopes=of_heads[:3])
        with self.assertRaisesRegex(ValueError, r"alibi_slopes has the shape \(4, 2\), expected \(2, 4\)"):
            hr.attention_forward(q, k, v, alibi_slopes=of_batch.T.copy())
        with self.assertRaisesRegex(TypeError, "alibi_slopes is float64, it must be float32"):
            hr.attention_forward(q, k, v, alibi_slopes=of_heads.astype(np.float64))
        with self.assertRaisesRegex(TypeError, "has no argument 'alibi_slopes': say alibi$"):
            hr.Attention(q.shape, k.shape, alibi_slopes=True)
        self.assertIn("flash: chosen", hr.explain(q, k, v, alibi_slopes=of_heads))

    def test_documents_see_only_themselves(self):
        q, k, v, d_o = inputs()
        cu_q, cu_k = np.array([[0, 10, 10, 30], [0, 1, 20, 33]], np.int32), np.array([[0, 12, 15, 40], [0, 0, 25, 39]], np.int32)
        seen = np.zeros((2, 33, 40), bool)
        for b in range(2):
            for d in range(3):
                rows, keys = range(cu_q[b, d], cu_q[b, d + 1]), range(cu_k[b, d], cu_k[b, d + 1])
                for i, row in enumerate(rows):
                    for j, key in enumerate(keys):
                        seen[b, row, key] = j <= i + len(keys) - len(rows)
        want = dense(q, k, v, d_o, seen)
        want[0][~seen.any(-1)], want[1] = 0, np.where(np.repeat(seen.any(-1)[:, None], 4, 1), want[1], -np.inf)
        got = attend(q, k, v, d_o, mask="causal", cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
        for g, w in zip(got, want):
            self.assert_near(np.where(np.isinf(w), np.where(g == w, 0, np.nan), g), np.where(np.isinf(w), 0, w), 1e-4)
        apart = cu_q.repeat(2, 1)[:, ::2]  # strides that no list has
        self.assertTrue(np.array_equal(attend(q, k, v, d_o, mask="causal", cu_seqlens_q=apart, cu_seqlens_k=cu_k)[0], got[0]))
        one = hr.attention_forward(q[:1], k[:1, :33], v[:1, :33], mask="causal", cu_seqlens_q=[0, 20, 33])  # keys as queries
        for at in (np.s_[:, :20], np.s_[:, 20:33]):
            alone = hr.attention_forward(q[:1][at], k[:1][at], v[:1][at], mask="causal")
            self.assert_near(one.o[at], alone.o, 1e-6)

    def test_a_cache_with_lengths_and_pages(self):
        q, k, v, _ = inputs(len_q=2, len_k=40)
        lengths = [33, 17]
        want = [hr.attention_forward(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], mask="causal").o for b, n in enumerate(lengths)]
        want = np.concatenate(want)
        got = hr.attention_with_cache(q, k, v, np.array(lengths, np.int64))
        self.assert_near(got.o, want, 1e-6)
        table = np.array([[7, 2, 9, 4, 0], [1, 3, 5, -1, 99]], np.int32)  # the second sequence uses three pages
        pages = [np.zeros((10, 8, 2, 16), np.float32) for _ in range(2)]
        for paged, whole in zip(pages, (k, v)):
            for b, n in enumerate((5, 3)):
                for at in range(n):
                    paged[table[b, at]] = whole[b, at * 8 : at * 8 + 8]
        self.assert_near(hr.attention_with_cache(q, *pages, lengths, table).o, want, 1e-6)
        with self.assertRaisesRegex(ValueError, "a cache in pages has no backward"):
            hr.attention_with_cache(q, *pages, lengths, table).backward(q)
        with self.assertRaisesRegex(hr.Error, r"pages\[1\]\[3\] is -1, there are pages 0 to 9"):
            hr.attention_with_cache(q, *pages, 40, table)
        whole = hr.attention_with_cache(q, k, v)
        self.assertTrue(np.array_equal(whole.o, hr.attention_forward(q, k, v, mask="causal").o))
        self.assertTrue(np.array_equal(hr.attention_with_cache(q, k, v, 40).o, whole.o))
        for words, arguments in (
            (r"lengths has the shape \(3,\), expected one number, or 2", (k, v, [1, 2, 3])), ("lengths is float64", (k, v, [1.5, 2.0])),
            (r"pages has the shape \(5,\)", (*pages, 4, table[0])), ("pages is int64", (*pages, 4, table.astype(np.int64))),
            (r"pages has the shape \(1, 5\), expected \(2, 5\)", (*pages, 4, table[:1])), ("lengths is 41, the cache has room for 40", (k, v, 41)),
            ("v_cache has the shape", (k, v[0])), ("lengths is -3", (k, v, -3)), (r"lengths\[1\] is 41, the cache has room", (k, v, [3, 41])),
            (r"lengths\[0\] is -1", (k, v, np.array([-1, 3]))),
        ):  # fmt: skip
            with self.assertRaisesRegex((ValueError, TypeError, hr.Error), words):
                hr.attention_with_cache(q, *arguments)

    def test_nothing_to_do(self):
        q, k, v, d_o = inputs()
        for cut in (np.s_[:0], np.s_[:, :0]):
            o, _, dq, _, _ = attend(q[cut], k[cut], v[cut], d_o[cut])
            self.assertEqual((o.size, dq.size), (0, 0))
        o, lse, dq, _, _ = attend(q, k[:, :0], v[:, :0], d_o)
        self.assertTrue((o == 0).all() and np.isneginf(lse).all() and (dq == 0).all())

    def test_flash_keeps_nothing(self):
        self.assertEqual(hr.Attention((1, 64, 2, 8), (1, 64, 2, 8), variant="flash").saved_bytes, 0)
        self.assertEqual(hr.Attention((1, 64, 2, 8), (1, 64, 2, 8), variant="plain").saved_bytes, 2 * 64 * 64 * 4)

    def test_backward_remembers_the_mask_and_the_scale(self):
        q, k, v, d_o = inputs()
        r = hr.attention_forward(q, k, v, mask="causal")
        for g, w in zip(hr.attention_backward(r, d_o), reference(q, k, v, d_o, causal=True)[2:]):
            self.assert_near(g, w, 1e-4)
        with self.assertRaisesRegex(TypeError, "takes what attention_forward returned"):
            hr.attention_backward(None, d_o)
        with self.assertRaises(TypeError):
            hr.attention_backward(q, k, v, r.o, r.lse, d_o, None)
        with self.assertRaisesRegex(TypeError, "one object"):
            _, _, _ = r

    def test_what_backward_reads_again_is_kept_or_its_change_is_seen(self):
        q, k, v, d_o = inputs()
        r = hr.attention_forward(q, k, v)
        for output in (r.o, r.lse):
            with self.assertRaisesRegex(ValueError, "read-only"):
                output *= 2
        for name in ("o", "lse"):
            with self.assertRaises(AttributeError):
                setattr(r, name, getattr(r, name).copy())
        before = r.backward(d_o)
        for name, x in (("q", q), ("k", k), ("v", v)):
            was = x.copy()
            for change in (lambda x: np.multiply(x, 2, out=x), lambda x: np.copyto(x, x[:, ::-1].copy()), lambda x: x[:, 5:6].fill(0.25)):
                change(x)
                with self.assertRaisesRegex(ValueError, f"{name} was changed after forward"):
                    r.backward(d_o)
                np.copyto(x, was)
        d_o *= 1  # what is given to backward alone may change
        for b, again in zip(before, r.backward(d_o)):
            self.assertTrue(np.array_equal(b, again))
        held = memoryview(q)
        r = hr.attention_forward(held, k, v)
        q[0, 0, 0, 0] += 1
        with self.assertRaisesRegex(ValueError, "q was changed"):
            r.backward(d_o)

    def test_what_is_given_to_forward_is_not_made_read_only(self):
        q, k, v, _ = inputs()
        hr.attention_forward(q, k, v)
        self.assertTrue(q.flags.writeable and k.flags.writeable and v.flags.writeable)
        o = hr.attention_forward(q, k, v).o
        hr.attention_forward(o, k, v)  # a result is an input as good as any

    def test_numbers_and_words_that_c_would_cut_are_refused(self):
        q, k, v, _ = inputs()
        with self.assertRaisesRegex(TypeError, "threads is 'cpu': a whole number.*device='cpu'"):
            hr.Context("cpu")
        for threads in (-1, 2**32 + 1, 2**70):
            with self.assertRaisesRegex(ValueError, "threads is .*: a whole number from 0 to 4096"):
                hr.Context(threads)
        for threads in (1.5, None, True, "4"):
            with self.assertRaisesRegex(TypeError, "threads is"):
                hr.Context(threads)
        for device in ("", "cuda:", "cuda:-1", "cuda:²", "cuda:99999999999", "gpu", None, "cpu\n"):
            with self.assertRaisesRegex(ValueError, "cpu, cuda or cuda:N"):
                hr.Context(device=device)
        for dim_v in (2**70, -1, 0):
            with self.assertRaisesRegex(ValueError, "dim_v is"):
                hr.Attention(q.shape, k.shape, dim_v=dim_v)
        with self.assertRaisesRegex(TypeError, "dim_v is 1.5: a whole number"):
            hr.Attention(q.shape, k.shape, dim_v=1.5)
        with self.assertRaisesRegex(ValueError, "below 2.62"):
            hr.explain((1, 2**62, 2, 8), (1, 4, 2, 8))
        for variant in ("", "flash\0x"):
            with self.assertRaisesRegex(ValueError, "variant is"):
                hr.attention_forward(q, k, v, variant=variant)
        for options in (dict(scale=1e300), dict(softcap=1e300), dict(softcap=-1.0), dict(softcap="2")):
            with self.assertRaisesRegex((ValueError, hr.Error), "scale|softcap"):
                hr.attention_forward(q, k, v, **options)

    def test_a_scale_of_zero_is_zero(self):
        q, k, v, d_o = inputs(heads=2)
        o, lse, dq, _, _ = attend(q, k, v, d_o, scale=0.0)
        self.assert_near(o, np.broadcast_to(v.astype(np.float64).mean(1, keepdims=True), o.shape), 1e-6)
        self.assert_near(lse, np.full(lse.shape, np.log(k.shape[1])), 1e-6)
        self.assertTrue((dq == 0).all())
        for call, name, said, words in (
            (hr.attention_forward, "is_causal", True, "attention_forward has no argument 'is_causal': say mask='causal', or .*:top-left"),
            (hr.attention_forward, "causal", False, "say mask='full'"), (hr.attention_forward, "window_size", (3, 0), "say mask='window:4'$"),
            (hr.attention_forward, "window_size", (3, 2), r"say mask='window:4\+2'"), (hr.attention_forward, "softmax_scale", 1.0, "say scale"),
            (hr.attention_with_cache, "block_table", None, "say pages"), (hr.attention_forward, "varient", "flash", "say variant"),
            (hr.explain, "causal", True, "explain has no argument 'causal': say mask='causal'"),
        ):  # fmt: skip
            with self.assertRaisesRegex(TypeError, words):
                call(q, k, v, **{name: said})
        with self.assertRaisesRegex(TypeError, "Attention has no argument 'is_causal': say mask='causal'"):
            hr.Attention(q.shape, k.shape, is_causal=True)
        default = hr.attention_forward(q, k, v).o
        self.assertTrue(np.array_equal(default, hr.attention_forward(q, k, v, scale=1 / np.sqrt(16)).o))
        self.assertFalse(np.array_equal(default, o))

    def test_what_is_refused_says_why(self):
        q, k, v, d_o = inputs()
        with self.assertRaisesRegex(hr.Error, "flsh") as refused:
            hr.attention_forward(q, k, v, variant="flsh")
        self.assertEqual(refused.exception.status, "unsupported")

        def refuse(kind, words, *arrays, **options):
            with self.assertRaisesRegex(kind, words):
                hr.attention_forward(*(arrays or (q, k, v)), **options)

        refuse(ValueError, "v has the shape", q, k, v[:, :8])
        refuse(TypeError, "q is float64, served are", q.astype(np.float64), k, v)
        refuse(TypeError, "k is float16, q is float32", q, k.astype(np.float16), v)
        refuse(TypeError, "big-endian", q.astype(">f4"), k, v)
        refuse(ValueError, "q has the shape", q[0], k, v)
        refuse(ValueError, "mask 'diagonal'", mask="diagonal")
        refuse(TypeError, "mask is None.*mask='full'", mask=None)
        refuse(TypeError, "mask is True.*mask='causal'", mask=True)
        refuse(TypeError, "masks given as arrays are not served", mask=np.ones((33, 40), bool))
        refuse(TypeError, "scale is a str", scale="0.5")
        refuse(ValueError, "scale is nan", scale=float("nan"))
        refuse(TypeError, "variant is a int", variant=3)
        refuse(TypeError, "context is a int", context=3)
        refuse(TypeError, "masked array", np.ma.masked_array(q), k, v)
        refuse(ValueError, "no keys are 2.62", mask="window:99999999999999999999")
        for call in (hr.explain, hr.Attention):
            with self.assertRaisesRegex(TypeError, "context is a int"):
                call((1, 4, 2, 8), (1, 4, 2, 8), context=3)
            with self.assertRaisesRegex(ValueError, "q_shape is"):
                call((1, 2**70, 2, 8), (1, 4, 2, 8))
            with self.assertRaisesRegex(TypeError, "q_shape is"):
                call((1, 4.5, 2, 8), (1, 4, 2, 8))
            with self.assertRaisesRegex(ValueError, "must agree"):
                call((1, 4, 2, 8), (1, 4, 2, 16))
        refuse(TypeError, "not an array", 5, k, v)
        refuse(TypeError, "not an array", None, k, v)
        refuse(ValueError, r"sink has the shape \(3,\), expected \(4,\)", sink=np.zeros(3, np.float32))
        refuse(TypeError, "sink is float64", sink=np.zeros(4))
        refuse(TypeError, "sink is float16, it must be float32", sink=np.zeros(4, np.float16))
        refuse(TypeError, "sink: a int is not an array", sink=3)
        refuse(TypeError, "cu_seqlens_q is int64, it must be int32", cu_seqlens_q=np.zeros((2, 3), np.int64))
        refuse(ValueError, "cu_seqlens_q has the shape", cu_seqlens_q=np.zeros(1, np.int32))
        refuse(ValueError, r"cu_seqlens_q has the shape \(3,\), expected \(2, 3\)", cu_seqlens_q=[0, 1, 2])
        refuse(ValueError, r"cu_seqlens_k has the shape", cu_seqlens_q=[[0, 33]] * 2, cu_seqlens_k=[[0, 1, 2]] * 2)
        refuse(ValueError, "cu_seqlens_k is given without", cu_seqlens_k=[[0, 40]] * 2)
        refuse(hr.Error, r"cu_seqlens_q\[1\] ends at 34, and there are 33 positions", cu_seqlens_q=[[0, 33], [0, 34]])
        with self.assertRaisesRegex(ValueError, "sink is missing"):
            hr.Attention(q.shape, k.shape, sink=True).forward(q, k, v)
        with self.assertRaisesRegex(ValueError, "cu_seqlens_q is given, and this problem has none"):
            hr.Attention(q.shape, k.shape).forward(q, k, v, cu_seqlens_q=[[0, 33]] * 2)
        r = hr.attention_forward(q, k, v)
        with self.assertRaisesRegex(ValueError, "d_o has the shape"):
            r.backward(d_o[:, :3])
        with self.assertRaisesRegex(TypeError, "d_o"):
            r.backward(None)
        with self.assertRaisesRegex(ValueError, "dlse is"):
            r.backward(d_o, dlse=np.zeros(3, np.float32))

    def test_the_rest(self):
        self.assertRegex(hr.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(hr.version(), hr.__version__)
        self.assertIn("flash: chosen", hr.explain((1, 64, 2, 8), (1, 64, 2, 8)))
        self.assertEqual(hr.explain((1, 64, 2, 8), (1, 64, 2, 8), "fp16"), hr.explain((1, 64, 2, 8), (1, 64, 2, 8), dtype=np.float16))
        x = np.zeros((1, 64, 2, 8), np.float32)
        self.assertEqual(hr.explain(x, x, x, mask="causal"), hr.explain(x.shape, x.shape, mask="causal"))
        self.assertEqual(hr.explain(x, x, x[..., :4]), hr.explain(x.shape, x.shape, dim_v=4))
        with self.assertRaisesRegex(ValueError, "dtype is float16, and q is float32: leave dtype out"):
            hr.explain(x, x, x, dtype="fp16")
        self.assertEqual(hr.Context(threads=2).threads, 2)
        with self.assertRaisesRegex(ValueError, "device 'gpu'"):
            hr.Context(device="gpu")
        self.assertIn("attention_forward", dir(hr))
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            hr.nothing


if __name__ == "__main__":
    unittest.main()
