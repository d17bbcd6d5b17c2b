"""The Python door against attention written with NumPy in FP64. Exit code 77 says: skipped, and why."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import headroom


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


def inputs(dtype=np.float32, len_q=33, len_k=40, heads=4, kv_heads=2, dim=16):
    random = np.random.default_rng(7)
    shape = lambda length, h: (2, length, h, dim)  # noqa: E731
    return [random.standard_normal(shape(*s)).astype(dtype) for s in ((len_q, heads), (len_k, kv_heads), (len_k, kv_heads), (len_q, heads))]


class AttentionTest(unittest.TestCase):
    def assert_near(self, got, want, tolerance):
        self.assertLess(np.abs(got.astype(np.float64) - want).max(), tolerance)

    def test_every_variant_agrees_with_fp64(self):
        q, k, v, d_o = inputs()
        want = reference(q, k, v, d_o, causal=True)
        for variant in ("plain", "flash"):
            options = {"mask": "causal", "variant": variant}
            o, lse, saved = headroom.attention_forward(q, k, v, **options)
            got = [o, lse, *headroom.attention_backward(q, k, v, o, lse, d_o, saved, **options)]
            for g, w in zip(got, want):
                self.assert_near(g, w, 1e-4)

    def test_half_precision(self):
        q, k, v, d_o = inputs(np.float16)
        o, lse, _ = headroom.attention_forward(q, k, v)
        self.assertEqual(o.dtype, np.float16)
        self.assert_near(o, reference(q, k, v, d_o, causal=False)[0], 5e-3)

    def test_a_strided_view_is_read_in_place(self):
        q, k, v, _ = inputs()
        wide = np.zeros((2, 66, 4, 16), np.float32)
        wide[:, ::2] = q
        o, _, _ = headroom.attention_forward(q, k, v)
        again, _, _ = headroom.attention_forward(wide[:, ::2], k, v)
        self.assertTrue(np.array_equal(o, again))

    def test_whatever_speaks_array_or_dlpack(self):
        q, k, v, _ = inputs()

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

        o, _, _ = headroom.attention_forward(q, k, v)
        for wrap in (Array, Capsule, memoryview):
            again, _, _ = headroom.attention_forward(wrap(q), wrap(k), wrap(v))
            self.assertTrue(np.array_equal(o, again), wrap)

    def test_flash_keeps_nothing(self):
        self.assertEqual(headroom.Attention((1, 64, 2, 8), (1, 64, 2, 8), variant="flash").saved_bytes, 0)
        self.assertEqual(headroom.Attention((1, 64, 2, 8), (1, 64, 2, 8), variant="plain").saved_bytes, 2 * 64 * 64 * 4)

    def test_what_is_refused_says_why(self):
        q, k, v, _ = inputs()
        with self.assertRaisesRegex(headroom.Error, "flsh") as refused:
            headroom.attention_forward(q, k, v, variant="flsh")
        self.assertEqual(refused.exception.status, "unsupported")
        with self.assertRaisesRegex(headroom.Error, "k is") as refused:
            headroom.attention_forward(q, k[..., :8], v)
        self.assertEqual(refused.exception.status, "bad_argument")
        with self.assertRaisesRegex(TypeError, "float64"):
            headroom.attention_forward(q.astype(np.float64), k, v)
        with self.assertRaisesRegex(ValueError, "mask 'diagonal'"):
            headroom.attention_forward(q, k, v, mask="diagonal")
        with self.assertRaisesRegex(TypeError, "not an array"):
            headroom.attention_forward(5, k, v)

    def test_the_rest(self):
        self.assertRegex(headroom.version(), r"^\d+\.\d+\.\d+$")
        self.assertIn("flash: chosen", headroom.explain((1, 64, 2, 8), (1, 64, 2, 8)))
        self.assertEqual(headroom.Context(threads=2).threads, 2)


if __name__ == "__main__":
    unittest.main()
