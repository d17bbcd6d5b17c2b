"""How processes become ranks."""

import ctypes as c
import os
import sys
import uuid
from typing import Any, Optional

from ... import library as lib
from .comm import Comm


def _where_torch_is():
    """(rank, ranks, rendezvous) of torch.distributed's own group, whose ranks tell each other where to meet."""
    import socket

    import torch.distributed as torchs

    rank, ranks = torchs.get_rank(), torchs.get_world_size()
    hosts: "list[Any]" = [None] * ranks
    torchs.all_gather_object(hosts, (socket.gethostname(), _machine()))
    where = [f"local:{uuid.uuid4().hex}"]
    if any(h != hosts[0] for h in hosts) and rank == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            where = [f"{hosts[0][0]}:{free.getsockname()[1]}"]
    torchs.broadcast_object_list(where, src=0)
    return rank, ranks, where[0]


def _machine():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def join(
    rank: Optional[int] = None,
    ranks: Optional[int] = None,
    rendezvous: Optional[str] = None,
    patience: float = 600.0,
    gpus: str = "auto",
    staging_mb: float = 512.0,
) -> Comm:
    """Joins the ranks, when all have come.

    Without arguments: the ranks of torch.distributed where it is initialised, else as torchrun, Open MPI, PMI or SLURM say; where none of
    them says anything, this is the only rank. rendezvous: "host:port", free on rank 0's machine, or "local:name" on one machine; with rank and ranks
    alone it is MASTER_ADDR and MASTER_PORT. patience: seconds with a rank that lives and does not come to a call. gpus: how tensors on GPUs go:
    "auto" (copies from GPU to GPU on one machine, else NCCL; where neither works, through the host, with a warning), "nccl" or "host". The first
    call on a GPU joins them, and takes staging_mb of each.
    """
    if gpus not in ("auto", "nccl", "host"):
        raise ValueError(f"gpus is {gpus!r}: 'auto', 'nccl' or 'host'")
    if isinstance(staging_mb, bool) or not isinstance(staging_mb, (int, float)) or not 0.125 <= staging_mb <= 2**20:
        raise ValueError(f"staging_mb is {staging_mb!r}: from 0.125 to 1048576")
    if (rank is None) != (ranks is None) or (rendezvous is not None and rank is None):
        raise ValueError("say rank and ranks together, and rendezvous with them")
    if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not 0.001 <= patience <= 2e6:
        raise ValueError(f"patience is {patience!r}: seconds, from 0.001 to 2000000")
    if rank is None:
        torchs = sys.modules.get("torch.distributed")
        if torchs is not None and torchs.is_available() and torchs.is_initialized():
            rank, ranks, rendezvous = _where_torch_is()
    elif rendezvous is None and ranks != 1:
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        if not host or not port:
            raise ValueError(f"ranks is {ranks}: say rendezvous='host:port' too, or set MASTER_ADDR and MASTER_PORT")
        rendezvous = f"{host}:{port}"
    settings = lib.CommSettings(c.sizeof(lib.CommSettings), -1, 0, int(patience * 1000), None)
    if rank is not None:
        settings.rank = lib.whole(rank, "rank", 0, 2**20, "this process's")
        settings.ranks = lib.whole(ranks, "ranks", 1, 2**20, "how many there are")
        settings.rendezvous = None if rendezvous is None else rendezvous.encode()
    made = c.c_void_p()
    lib.call("headroom_comm_create", c.byref(settings), c.byref(made))
    return Comm(made, gpus, staging_mb)
