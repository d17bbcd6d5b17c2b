"""A user's program over tensors, for type checkers: it is never run."""

from typing import Tuple

import torch
from typing_extensions import assert_type

import gpu_headroom as hr
import gpu_headroom.torch as ht
import gpu_headroom.torch.dist as hd
from gpu_headroom.torch import flash_attn as fa


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu: torch.Tensor, flag: bool) -> torch.Tensor:
    assert_type(ht.attention(q, k, v, is_causal=True, window=None, sink=None), torch.Tensor)
    o, lse = ht.attention(q, k, v, return_lse=True, layout="blhd", window=(3, 4))
    assert_type(lse, torch.Tensor)
    either = ht.attention(q, k, v, return_lse=flag)
    if isinstance(either, tuple):
        either = either[0]
    assert_type(either, torch.Tensor)
    assert_type(ht.attention_varlen(q, k, v, cu, cu, 5, 5, is_causal=True), torch.Tensor)
    assert_type(ht.attention_varlen(q, k, v, cu, return_lse=True), Tuple[torch.Tensor, torch.Tensor])
    assert_type(ht.attention_with_cache(q, k, v, 3), torch.Tensor)
    assert_type(ht.attention_with_cache(q, k, v, 3, return_lse=True)[1], torch.Tensor)
    dq, dk, dv = ht.attention_backward(o, q, k, v, o, lse)
    with ht.replace_sdpa(tf32=True) as seen:
        print(seen.explain().upper(), seen.served + 1)
    print(ht.explain(q, k, v).upper(), ht.why_not(q, k, v), hr.forecast(precision=torch.bfloat16, device=torch.device("cpu")).fits)
    ht.attention(q, k, v, causal=True)  # type: ignore[call-overload]  # pyright: ignore
    ht.attention(q, k, v, return_lse=True).sum()  # type: ignore[attr-defined]  # pyright: ignore
    return o + either + dq + dk + dv


def as_flash_attn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, cu: torch.Tensor, flag: bool) -> torch.Tensor:
    o, lse, _ = fa.flash_attn_func(q, k, v, 0.0, None, True, (3, 0), return_attn_probs=True)
    assert_type(fa.flash_attn_func(q, k, v, causal=True, window_size=(-1, 0)), torch.Tensor)
    assert_type(fa.flash_attn_kvpacked_func(q, kv, 0.0, causal=True), torch.Tensor)
    assert_type(fa.flash_attn_varlen_func(q, k, v, cu, cu, 5, 5, block_table=cu), torch.Tensor)
    assert_type(fa.flash_attn_varlen_qkvpacked_func(kv, cu, 5, return_attn_probs=True)[1], torch.Tensor)
    assert_type(fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=3, return_softmax_lse=True), Tuple[torch.Tensor, torch.Tensor])
    either = fa.flash_attn_func(q, k, v, return_attn_probs=flag)
    fa.flash_attn_func(q, k, v, is_causal=True)  # type: ignore[call-overload]  # pyright: ignore
    return fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=3) + o + lse + (either[0] if isinstance(either, tuple) else either)


def train(model: torch.nn.Module, x: torch.Tensor, name: str) -> torch.Tensor:
    with hd.join(0, 1, name, patience=60) as comm:
        assert_type(comm.all_reduce(x, "mean"), torch.Tensor)
        work = comm.all_gather(x, later=True)
        assert_type(work, hd.Work)
        whole: torch.Tensor = work.wait()
        assert_type(comm.broadcast(x, 0, later=False, what="x"), torch.Tensor)
        replicas = hd.DistributedDataParallel(model, comm, how="flat")
        optimizer = hd.ShardedOptimizer(replicas.parameters(), torch.optim.AdamW, comm, lr=1e-3)
        optimizer.step()
        sharded = hd.FullyShardedDataParallel(model, comm, compute_dtype=torch.bfloat16)
        print(comm.rank + comm.ranks, sharded.whole_parameters()["weight"].shape)
        comm.all_reduce(x, later=1.5)  # type: ignore[call-overload]  # pyright: ignore
        return sharded.clip_grad_norm_(1.0) + whole
