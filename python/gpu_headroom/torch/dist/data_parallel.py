"""Replicas of a module on all ranks, whose gradients become the ranks' mean: one by one, in buckets while backward runs, or all at once."""

import contextlib
import dataclasses
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch

from .comm import Comm
from .joining import join


class _Unit:
    """Parameters whose gradients travel together."""

    def __init__(self, parameters: "List[torch.nn.Parameter]") -> None:
        self.parameters = parameters
        self.name = ""
        self.missing = len(parameters)  # parameters that backward has not come to
        self.work: Any = None  # while its gradients travel
        self.flat: Any = None
        self.parts: "Sequence[torch.Tensor]" = []  # parts of flat, as the parameters are shaped


def units_of(parameters: Sequence[torch.nn.Parameter], bucket_bytes: Optional[int]) -> "List[_Unit]":
    """In the order of backward, the last parameter first. bucket_bytes: 0 for one parameter each, None for one unit per dtype and device."""
    several: "List[List[torch.nn.Parameter]]" = []
    sizes: "dict[Any, int]" = {}
    at: "dict[Any, List[torch.nn.Parameter]]" = {}
    for p in reversed(parameters):
        kind, size = (p.dtype, p.device), p.numel() * p.element_size()
        if kind not in at or (bucket_bytes is not None and sizes[kind] + size > bucket_bytes):
            at[kind], sizes[kind] = [], 0
            several.append(at[kind])
        at[kind].append(p)
        sizes[kind] += size
    return [_Unit(those) for those in several]


class Gradients:
    """Makes the gradients of `parameters` the ranks' mean. Units are sent in one order on all ranks, each as soon as it and those before it
    are there. A gradient that a rank does not have counts as 0 there; one that no rank has stays None."""

    def __init__(self, comm: Comm, named: "Dict[str, torch.nn.Parameter]", bucket_bytes: Optional[int]) -> None:
        self.comm, self.parameters, self.enabled = comm, list(named.values()), True
        self.units = units_of(self.parameters, bucket_bytes)
        names = {id(p): name for name, p in named.items()}
        for unit in self.units:
            unit.name = "gradients to " + names[id(unit.parameters[-1])]
        self._arrived: "set[int]" = set()
        self._next = 0
        self._active = False
        for unit in self.units:
            for p in unit.parameters:
                p.register_post_accumulate_grad_hook(functools.partial(self._came, unit))

    def begin(self) -> None:
        """Called within backward: finish() runs at its end."""
        if self.enabled and not self._active:
            self._active = True
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)  # type: ignore[attr-defined]

    def _came(self, unit: _Unit, p: torch.Tensor) -> None:
        if not self.enabled:
            return
        self.begin()
        if id(p) in self._arrived:
            return
        self._arrived.add(id(p))
        unit.missing -= 1
        while self._next < len(self.units) and self.units[self._next].missing == 0:
            self._send(self.units[self._next])

    def _send(self, unit):
        self._next += 1
        if len(unit.parameters) == 1:
            (p,) = unit.parameters
            unit.flat = torch.zeros_like(p) if p.grad is None else p.grad
            unit.parts = [unit.flat]
        else:
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in unit.parameters]
            unit.flat = torch._C._nn.flatten_dense_tensors(gradients)  # as torch's own DDP: a call for all of them, not several for each
            unit.parts = torch._C._nn.unflatten_dense_tensors(unit.flat, gradients)
            for p, gradient, part in zip(unit.parameters, gradients, unit.parts):
                if p.grad is gradient and gradient.is_contiguous():
                    p.grad = part  # from now on: its own memory is free
        unit.work = self.comm.all_reduce(unit.flat, "mean", later=True, what=unit.name)

    def finish(self) -> None:
        """Sends what is left, waits for all, and puts the means in place."""
        self._active = False
        while self._next < len(self.units):
            self._send(self.units[self._next])
        here = torch.tensor([float(p.grad is not None) for p in self.parameters], device="cpu")
        counts = self.comm.all_reduce(here, what="which gradients there are")
        somewhere = {id(p) for p, n in zip(self.parameters, counts.tolist()) if n}
        for unit in self.units:
            unit.work.wait()
            for p, part in zip(unit.parameters, unit.parts):
                if p.grad is part:
                    continue
                if p.grad is None:
                    if id(p) in somewhere:
                        p.grad = part
                elif p.grad.data_ptr() != part.data_ptr():
                    p.grad.copy_(part)
            unit.parts = []
            unit.work = unit.flat = None
            unit.missing = len(unit.parameters)
        self._arrived.clear()
        self._next = 0


def tensors_in(made: Any) -> "Iterator[torch.Tensor]":
    """Those of tuples, lists, dicts, dataclasses, and what models of transformers return."""
    if isinstance(made, torch.Tensor):
        yield made
    elif isinstance(made, dict):
        for one in made.values():
            yield from tensors_in(one)
    elif isinstance(made, (list, tuple)):
        for one in made:
            yield from tensors_in(one)
    elif dataclasses.is_dataclass(made) and not isinstance(made, type):
        for field in dataclasses.fields(made):
            yield from tensors_in(getattr(made, field.name))


def at_backward(made: Any, begin: Callable[[], None]) -> Any:
    """Calls begin() when a backward pass from `made` begins; a checkpoint within has a backward pass of its own."""
    if torch.is_grad_enabled():
        for t in tensors_in(made):
            if t.requires_grad:
                t.register_hook(lambda _: begin())
    return made


def send_from_rank_0(comm: Comm, module: torch.nn.Module) -> None:
    with torch.no_grad():
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            comm.broadcast(t, what=name)


class DistributedDataParallel(torch.nn.Module):
    """`module` on every rank: rank 0's parameters and buffers, and gradients that are the ranks' mean when backward() returns.

    how: "bucketed" (buckets of bucket_mb, while backward runs), "per parameter" (the same, one by one) or "flat" (all after backward, once).
    bucket_mb: 25, and on a GPU, where a call takes the host longer than the link, 100.
    FP32 gradients have the bits of one process that adds the ranks' micro-batches in order and divides by their number.
    """

    def __init__(self, module: torch.nn.Module, comm: Optional[Comm] = None, how: str = "bucketed", bucket_mb: Optional[float] = None) -> None:
        super().__init__()
        if bucket_mb is None:
            bucket_mb = 100.0 if any(p.is_cuda for p in module.parameters()) else 25.0
        sizes = {"bucketed": int(bucket_mb * 2**20), "per parameter": 0, "flat": None}
        if how not in sizes:
            raise ValueError(f"how is {how!r}: 'bucketed', 'per parameter' or 'flat'")
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb is {bucket_mb}: it must be more than 0")
        self.module = module
        self.comm = join() if comm is None else comm
        send_from_rank_0(self.comm, module)
        self._gradients = Gradients(self.comm, {name: p for name, p in module.named_parameters() if p.requires_grad}, sizes[how])

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return at_backward(self.module(*arguments, **named), self._gradients.begin)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add to this rank's gradients; the next one outside averages the sums."""
        self._gradients.enabled = False
        try:
            yield
        finally:
            self._gradients.enabled = True
