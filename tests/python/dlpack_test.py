"""Arrays of JAX and CuPy by DLPack. Exit code 77 says: skipped, and why. What is installed is tested."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import gpu_headroom as hr

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
try:
    import cupy

    cupy.zeros(1)
except Exception:  # not installed, or no device: CuPy raises errors of its own
    cupy = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
if jax is None and cupy is None and ml_dtypes is None:
    print("skipped: none of JAX, CuPy (with a device) and ml_dtypes is installed")
    sys.exit(77)


def inputs(dtype=np.float32):
    random = np.random.default_rng(3)
    return [random.standard_normal((2, 24, 4, 16)).astype(dtype) for _ in range(4)]


def attend(q, k, v, d_o):
    r = hr.attention_forward(q, k, v, mask="causal")
    return [r.o, r.lse, *r.backward(d_o)]


class DLPackTest(unittest.TestCase):
    @unittest.skipIf(jax is None, "JAX is not installed")
    def test_jax(self):
        given = inputs()
        want = attend(*given)
        for g, w in zip(attend(*[jnp.asarray(x) for x in given]), want):
            self.assertIsInstance(g, jax.Array)
            self.assertLess(np.abs(np.asarray(g) - w).max(), 1e-4)

    @unittest.skipIf(jax is None, "JAX is not installed")
    def test_jax_in_bf16_beside_its_own_attention(self):
        q, k, v, d_o = (jnp.asarray(x, jnp.bfloat16) for x in inputs())
        want, gradients = jax.vjp(lambda *x: jax.nn.dot_product_attention(*x, is_causal=True), q, k, v)
        got = attend(q, k, v, d_o)
        self.assertEqual(got[0].dtype, jnp.bfloat16)
        for g, w in zip([got[0], *got[2:]], [want, *gradients(d_o)]):
            self.assertLess(np.abs(np.asarray(g, np.float32) - np.asarray(w, np.float32)).max(), 6e-2)

    @unittest.skipIf(jax is None, "JAX is not installed")
    def test_jax_leaves_other_arrays_alone(self):
        zeros = jnp.zeros((2, 24, 4, 16))
        hr.attention_forward(*[jnp.asarray(x) for x in inputs()[:3]])
        self.assertEqual(float(jnp.abs(zeros).max()), 0.0)
        self.assertEqual(float(jnp.abs(jnp.zeros((2, 24, 4, 16))).max()), 0.0)

    @unittest.skipIf(cupy is None, "CuPy is not installed, or has no device")
    def test_cupy(self):
        given = inputs()
        want = attend(*given)
        stream = cupy.cuda.Stream()
        with stream:
            got = attend(*[cupy.asarray(x) for x in given])
        stream.synchronize()
        for g, w in zip(got, want):
            self.assertIsInstance(g, cupy.ndarray)
            self.assertLess(np.abs(cupy.asnumpy(g) - w).max(), 2e-4)
        d_o = cupy.broadcast_to(cupy.asarray(0.5, cupy.float32), (2, 24, 4, 16))  # no kernel reads this in place
        given = [cupy.asarray(x) for x in given[:3]]
        for g, w in zip(attend(*given, d_o), attend(*given, cupy.ascontiguousarray(d_o))):
            self.assertTrue(bool((g == w).all()))

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_numpys_bf16(self):
        given = inputs(ml_dtypes.bfloat16)
        got = attend(*given)
        self.assertEqual(got[0].dtype, ml_dtypes.bfloat16)
        for g, w in zip(got, attend(*[x.astype(np.float32) for x in given])):
            self.assertLess(np.abs(g.astype(np.float32) - w).max(), 6e-2)


if __name__ == "__main__":
    unittest.main()
