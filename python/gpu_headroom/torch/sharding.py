"""How DTensors may lie when they meet our operators: whole, or split by batch or by heads. Every other split would need communication inside."""

import math

import torch

from .calls import Options
from .imports import when_imported


def _splits(q, k, heads_first):
    """(name, dimension of q, k and v, dimension of lse) of what may be split over the mesh."""
    rows = 1 if heads_first else 2
    splits = [("batch", 0, 0)]
    parts = [q.mesh.size(dim) for dim, placement in enumerate(q.placements) if placement.is_shard(rows)]  # as heads are split already
    if k.shape[rows] % (math.prod(parts) if parts else q.mesh.size()) == 0:  # each part has its key heads whole
        splits.append(("heads", rows, 1))
    return splits


def _register(module):
    from torch.distributed.tensor import Partial, Replicate, Shard
    try:
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:
        return

    def given(tensor, placement):
        return None if tensor is None else placement

    def of_slopes(alibi, by_batch):
        """[heads], [batch, heads] or [batch, documents, heads]"""
        rank = 0 if alibi is None else len(alibi.shape)
        return Replicate() if by_batch and rank < 2 else Shard(0 if by_batch else rank - 1)

    @register_sharding(torch.ops.headroom.attention_forward.default)
    def forward(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options):
        rest = [None] * len(options)
        whole = [given(t, Replicate()) for t in (q, k, v, sink, cu_q, cu_k, pages, random, alibi)]
        accepted = [([Replicate(), Replicate()], whole + rest)]
        # By its own part alone a rank does not know which heads it has: split, all would drop the same.
        for name, at, of_lse in [] if pages is not None or random is not None else _splits(q, k, Options(*options).heads_first):
            one = name == "batch"
            small = [given(sink, Replicate() if one else Shard(0)), *[given(t, Shard(0) if one else Replicate()) for t in (cu_q, cu_k)], None, None]
            small.append(given(alibi, of_slopes(alibi, one)))
            accepted.append(([Shard(at), Shard(of_lse)], [Shard(at)] * 3 + small + rest))
        return accepted

    @register_sharding(torch.ops.headroom.attention_backward.default)
    def backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *options):
        rest = [None] * len(options)
        whole = [given(t, Replicate()) for t in (d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi)]
        accepted = [([Replicate()] * 4, whole + rest)]
        for name, at, of_lse in [] if random is not None else _splits(q, k, Options(*options).heads_first):
            one = name == "batch"
            dsink = Replicate() if sink is None else Partial() if one else Shard(0)
            small = [given(sink, Replicate() if one else Shard(0)), *[given(t, Shard(0) if one else Replicate()) for t in (cu_q, cu_k)], None]
            small.append(given(alibi, of_slopes(alibi, one)))
            inputs = [Shard(at), given(dlse, Shard(of_lse)), *[Shard(at)] * 4, Shard(of_lse), *small]
            accepted.append(([Shard(at)] * 3 + [dsink], inputs + rest))
        return accepted


def register():
    """Make DTensor know our operators, now or when it is imported; torch before 2.5 has no public way."""
    when_imported("torch.distributed.tensor", _register)
