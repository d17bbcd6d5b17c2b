"""Ranks: processes that torchrun, mp.spawn or you started, their collectives, and training on all of them.

    import gpu_headroom.torch.dist as hd
    comm = hd.join()                                # torchrun, or torch.distributed that is there; join(rank, ranks, "host:port") by hand
    comm.all_reduce(t)                              # in place; sums are FP32, in the order of ranks, rounded once
    work = comm.all_gather(t, later=True)           # begins now; work.wait() gives [ranks, *t.shape]

    model = hd.DistributedDataParallel(model, comm)                        # gradients are the ranks' mean after backward()
    optimizer = hd.ShardedOptimizer(model.parameters(), torch.optim.AdamW, comm, lr=1e-3)
    model = hd.FullyShardedDataParallel(model, comm, compute_dtype=torch.bfloat16)

Every rank makes the same calls in the same order. Where they differ, every rank gets the sentence that says how. A rank that dies, or that
refuses its own call, ends the calls of the others within ten seconds, with its sentence.
"""

from .comm import Comm
from .data_parallel import DistributedDataParallel
from .fully_sharded import FullyShardedDataParallel
from .joining import join
from .optimizer import ShardedOptimizer
from .work import Work

__all__ = ["Comm", "DistributedDataParallel", "FullyShardedDataParallel", "ShardedOptimizer", "Work", "join"]
