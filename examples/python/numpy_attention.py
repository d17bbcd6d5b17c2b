"""Attention on NumPy arrays: forward, LSE and gradients; documents packed into one row, with a sink per head."""

import numpy as np

import gpu_headroom as hr

random = np.random.default_rng(0)
q, k, v = (random.standard_normal((1, 300, h, 64), np.float32) for h in (8, 2, 2))  # [batch, len, heads, head_dim]; 8 heads share 2

r = hr.attention_forward(q, k, v, mask="causal")
dq, dk, dv = r.backward(np.ones_like(r.o))
print("o", r.o.shape, "lse", r.lse.shape, "dq", dq.shape, "dk", dk.shape)

lengths = [120, 80, 100]  # three documents, one behind another: each sees only itself
borders = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
packed = hr.attention_forward(q, k, v, mask="causal", cu_seqlens_q=borders)
alone = hr.attention_forward(q[:, 120:200], k[:, 120:200], v[:, 120:200], mask="causal")
print(f"the second document, packed and alone: {np.abs(packed.o[:, 120:200] - alone.o).max():.1e} apart")

sinks = hr.attention_forward(q, k, v, mask="causal", sink=np.zeros(8, np.float32))
*_, dsink = sinks.backward(np.ones_like(sinks.o))
print("the sinks' gradient", dsink.shape)
