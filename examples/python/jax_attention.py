"""Attention on JAX arrays by DLPack, nothing copied; with gradients of its own for jax.grad. Eager code, outside jax.jit."""

import jax
import jax.numpy as jnp

import gpu_headroom as hr

jax.config.update("jax_default_matmul_precision", "highest")  # on a GPU JAX would compare with TF32


@jax.custom_vjp
def attention(q, k, v):  # [batch, len, heads, head_dim]
    return hr.attention_forward(q, k, v, mask="causal").o


def forward(q, k, v):
    r = hr.attention_forward(q, k, v, mask="causal")
    return r.o, jax.tree_util.Partial(r.backward)


attention.defvjp(forward, lambda backward, d_o: backward(d_o))

q, k, v = (jax.random.normal(key, (2, 64, 4, 32)) for key in jax.random.split(jax.random.key(0), 3))
o, pull = jax.vjp(attention, q, k, v)
want, wanted = jax.vjp(lambda *x: jax.nn.dot_product_attention(*x, is_causal=True), q, k, v)
print(type(o).__name__, o.shape, f"{float(jnp.abs(o - want).max()):.1e} from JAX's")
for name, ours, theirs in zip("qkv", pull(jnp.ones_like(o)), wanted(jnp.ones_like(o))):
    print(f"d{name} {float(jnp.abs(ours - theirs).max()):.1e}")
