"""Any optimizer of torch, each rank of which keeps the state of its own share of the parameters."""

from typing import Any, Callable, Dict, Optional, Type

import torch

from .comm import Comm
from .joining import join


class ShardedOptimizer(torch.optim.Optimizer):
    """ShardedOptimizer(parameters, torch.optim.AdamW, comm, lr=...): the same updates, 1/ranks of the state on each rank.

    A parameter belongs to the rank that holds least so far. step() updates a rank's own, then sends them to the others. state_dict() is that
    of this rank's share.
    """

    def __init__(self, params: Any, optimizer_cls: Type[torch.optim.Optimizer], comm: Optional[Comm] = None, **settings: Any) -> None:
        self.comm = join() if comm is None else comm
        self._class, self._settings = optimizer_cls, settings
        self._own: Optional[torch.optim.Optimizer] = None
        self._held = [0] * self.comm.ranks
        self._rank_of: "Dict[torch.Tensor, int]" = {}
        super().__init__(params, optimizer_cls([torch.nn.Parameter(torch.zeros(1, device="cpu"))], **settings).defaults)

    def add_param_group(self, param_group: "Dict[str, Any]") -> None:
        given = param_group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(dict.fromkeys(given))  # a tied weight is one
        super().add_param_group({**param_group, "params": given})
        group = self.param_groups[-1]
        for p in group["params"]:
            rank = self._held.index(min(self._held))
            self._rank_of[p] = rank
            self._held[rank] += p.numel() * p.element_size()
        own = {**group, "params": [p for p in group["params"] if self._rank_of[p] == self.comm.rank]}
        if not own["params"]:
            return
        if self._own is None:
            self._own = self._class([own], **self._settings)
        else:
            self._own.add_param_group(own)
        group["own"] = len(self._own.param_groups) - 1

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Updates; every rank calls it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._own is not None:
            for group in self.param_groups:  # a schedule may have changed them
                if "own" in group:
                    self._own.param_groups[group["own"]].update({k: v for k, v in group.items() if k not in ("params", "own")})
            self._own.step()
        self._share()
        return loss

    @torch.no_grad()
    def _share(self):
        pieces: "Dict[Any, list]" = {}
        for p, rank in self._rank_of.items():
            if not p.requires_grad:
                continue
            pieces.setdefault((rank, p.dtype, p.device), []).append(p)
        sent = []
        for (rank, _, _), those in pieces.items():
            flat = torch.cat([p.detach().reshape(-1) for p in those])
            sent.append((rank, those, flat, self.comm.broadcast(flat, rank, later=True, what="updated parameters")))
        for rank, those, flat, work in sent:
            work.wait()
            if rank != self.comm.rank:
                for p, part in zip(those, flat.split([p.numel() for p in those])):
                    p.copy_(part.view_as(p))

    def state_dict(self) -> "Dict[str, Any]":
        return {} if self._own is None else self._own.state_dict()

    def load_state_dict(self, state_dict: "Dict[str, Any]") -> None:
        if self._own is not None:
            self._own.load_state_dict(state_dict)
            for group in self.param_groups:
                if "own" in group:
                    group.update({k: v for k, v in self._own.param_groups[group["own"]].items() if k != "params"})
