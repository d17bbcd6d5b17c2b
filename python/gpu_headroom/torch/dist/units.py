"""Modules whose parameters are shared out among the ranks and travel together: gathered before the module runs, forward or backward, and
let go of after it."""

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .comm import Comm
from .data_parallel import at_backward
from .work import Work

_ALIGN = 16  # elements: a parameter's part begins at a whole piece of memory


class _Lent:
    """A parameter of a unit: this rank's part, which the optimizer has, and the whole, which has memory only while the module runs."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, ranks: int, at: int) -> None:
        self.names, self.parameter, self.shape, self.count = [name], parameter, parameter.shape, parameter.numel()
        self.part = -(-self.count // ranks)
        self.at = at  # the part's place among the unit's
        self.places: "List[Tuple[torch.nn.Module, str]]" = []
        self.whole: Any = None
        self.rows: Any = None  # the whole's memory, [ranks, part]

    def slot(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[:, self.at : self.at + self.part]

    def make_whole(self, ranks: int, dtype: torch.dtype) -> None:
        self.rows = torch.empty((ranks, self.part), dtype=dtype, device=self.parameter.device)
        whole = self.rows.view(-1)[: self.count].view(self.shape)
        self.whole = torch.nn.Parameter(whole, self.parameter.requires_grad)
        self.rows = self.rows.data  # with a version of its own: to gather again is no change to what autograd keeps


class Unit:
    """Parameters of one type and device; their module runs with the whole ones."""

    def __init__(self, name: str, module: torch.nn.Module, comm: Comm, dtype: Optional[torch.dtype]) -> None:
        self.name, self.module, self.comm, self.dtype = name, module, comm, dtype
        self.lent: "List[_Lent]" = []
        self.flat: Any = None  # this rank's parts
        self.begun: Optional[Work] = None
        self.here = False
        self.arrived: "List[_Lent]" = []
        self.expected = 0

    def add(self, name: str, parameter: torch.nn.Parameter, places: "List[Tuple[torch.nn.Module, str]]") -> None:
        at = self.lent[-1].at + -(-self.lent[-1].part // _ALIGN) * _ALIGN if self.lent else 0
        self.lent.append(_Lent(name, parameter, self.comm.ranks, at))
        self.lent[-1].places = places

    @torch.no_grad()
    def share_out(self, came: Callable[["Unit", _Lent], None]) -> None:
        last = self.lent[-1]
        first = last.parameter
        self.row = last.at + -(-last.part // _ALIGN) * _ALIGN
        self.dtype = self.dtype or first.dtype
        self.flat = torch.zeros(self.row, dtype=first.dtype, device=first.device)
        self.expected = sum(p.parameter.requires_grad for p in self.lent)
        for p in self.lent:
            own = self.flat[p.at : p.at + p.part]
            begin = self.comm.rank * p.part
            mine = p.parameter.detach().reshape(-1)[begin : begin + p.part]
            own[: mine.numel()].copy_(mine)
            p.make_whole(self.comm.ranks, self.dtype)
            p.parameter.data = own
            p.rows.untyped_storage().resize_(0)
            if p.parameter.requires_grad:
                p.whole.register_post_accumulate_grad_hook(functools.partial(lambda p, _: came(self, p), p))

    # ---- whole for a while

    def begin(self) -> None:
        if not self.here and self.begun is None:
            with torch.no_grad():
                self.begun = self.comm.all_gather(self.flat.to(self.dtype), later=True, what=self.name)

    @torch.no_grad()
    def gather(self) -> None:
        if self.here:
            return
        self.begin()
        assert self.begun is not None
        rows, self.begun, self.here = self.begun.wait(), None, True
        for p in self.lent:
            storage = p.rows.untyped_storage()
            storage.resize_(p.rows.numel() * p.rows.element_size())
            p.rows.copy_(p.slot(rows))

    def forget(self) -> None:
        """What was begun and not used: an update would make it old."""
        self.begun = None

    def let_go(self) -> None:
        if self.here:
            self.here = False
            for p in self.lent:
                p.rows.untyped_storage().resize_(0)

    def put(self, whole: bool) -> None:
        for p in self.lent:
            for module, name in p.places:
                module._parameters[name] = p.whole if whole else p.parameter

    # ---- gradients

    @torch.no_grad()
    def send(self) -> "Tuple[Unit, List[_Lent], Work]":
        """Begins the mean of the gradients that came, and lets go of them."""
        new = torch.empty if len(self.arrived) == len(self.lent) else torch.zeros
        rows = new((self.comm.ranks, self.row), dtype=self.dtype, device=self.flat.device)
        for p in self.arrived:
            gradient, slot = p.whole.grad, p.slot(rows)
            p.whole.grad = None
            if p.count == self.comm.ranks * p.part:
                slot.copy_(gradient.reshape(self.comm.ranks, p.part))
                continue
            flat = gradient.reshape(-1)
            for rank in range(self.comm.ranks):
                piece = flat[rank * p.part : (rank + 1) * p.part]
                slot[rank, : piece.numel()].copy_(piece)
                slot[rank, piece.numel() :].zero_()
        sent = self, self.arrived, self.comm.reduce_scatter(rows, "mean", later=True, what="gradients of " + self.name)
        self.arrived = []
        return sent

    @torch.no_grad()
    def settle(self, those: "List[_Lent]", work: Work) -> None:
        mean = work.wait().to(self.flat.dtype)
        for p in those:
            part = mean[p.at : p.at + p.part]
            if p.parameter.grad is None:
                p.parameter.grad = part
            else:
                p.parameter.grad += part

    def whole_parameters(self) -> "Dict[str, torch.Tensor]":
        rows = self.comm.all_gather(self.flat.detach(), what=self.name)
        wholes = [(p, p.slot(rows).reshape(-1)[: p.count].view(p.shape).clone()) for p in self.lent]
        return {name: whole for p, whole in wholes for name in p.names}


class Units:
    """A module whose parameters are in units: those of `modules`, and one of the rest, which is whole for the whole pass."""

    MOST_SENT = 2  # reductions under way at once; their gradients have memory until a later one begins

    def __init__(self, root: torch.nn.Module, modules: Sequence[torch.nn.Module], comm: Comm, dtype: Optional[torch.dtype], prefetch: int) -> None:
        self.comm, self.dtype, self.prefetch = comm, dtype, prefetch
        names = {id(m): name for name, m in root.named_modules()}
        for m in modules:
            if id(m) not in names:
                raise ValueError(f"units: {type(m).__name__} is no module of {type(root).__name__}")
        places: "Dict[int, List[Tuple[torch.nn.Module, str]]]" = {}
        for m in root.modules():
            for name, p in m._parameters.items():
                if p is not None:
                    places.setdefault(id(p), []).append((m, name))
        inside = [(m, {id(x) for x in m.modules()}) for m in modules if m is not root]
        units: "Dict[Tuple[int, Any, Any], Unit]" = {}
        for name, p in root.named_parameters():
            owner = root
            for m, those in inside:  # the innermost that holds all its places
                if all(id(at) in those for at, _ in places[id(p)]) and (owner is root or id(m) in {id(x) for x in owner.modules()}):
                    owner = m
            key = (id(owner), p.dtype, p.device)
            if key not in units:
                units[key] = Unit("parameters of " + (names[id(owner)] or "the rest"), owner, comm, dtype if p.is_floating_point() else None)
            units[key].add(name, p, places[id(p)])
        of_parameter = {id(p.parameter): p for u in units.values() for p in u.lent}
        for name, p in root.named_parameters(remove_duplicate=False):  # a tied weight has several
            lent = of_parameter[id(p)]
            lent.names += [name] if name not in lent.names else []
        self.all = list(units.values())
        self.root = [u for u in self.all if u.module is root]
        of: "Dict[int, List[Unit]]" = {}
        for u in self.all:
            u.share_out(self._came)
            if u.module is not root:
                of.setdefault(id(u.module), []).append(u)
        for m, _ in inside:
            if id(m) in of:
                self._wrap(m, of[id(m)])
        self._order: "List[List[Unit]]" = []
        self._at = 0
        self._sent: "List[Tuple[Unit, List[_Lent], Work]]" = []
        self._active = False

    def _as_computed(self, x):
        return x.to(self.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    def _wrap(self, module, units):
        compiled = getattr(module, "_compiled_call_impl", None)
        forward = compiled or module.forward

        @torch._dynamo.disable(recursive=False)
        def with_whole(*arguments, **named):
            if self.dtype is not None:
                arguments, named = tuple(self._as_computed(x) for x in arguments), {k: self._as_computed(x) for k, x in named.items()}
            self._ahead(units)
            for u in units:
                u.gather()
                u.put(True)
            try:
                made = forward(*arguments, **named)
            finally:
                for u in units:
                    u.put(False)
            if torch._C._current_graph_task_id() != -1:
                return made  # a checkpoint's forward pass: its backward pass follows
            for u in units:
                u.let_go()
            return at_backward(made, lambda: self._before_backward(units))

        if compiled:
            module._compiled_call_impl = with_whole
        else:
            module.forward = with_whole

    def _ahead(self, units):
        """Begins to gather what followed in the last forward pass: the same on every rank."""
        if torch._C._current_graph_task_id() != -1:
            return
        if not (self._at < len(self._order) and self._order[self._at] is units):  # another way than last time
            for u in self.all:
                u.forget()
            del self._order[self._at :]
            self._order.append(units)
        for u in units:
            u.begin()
        self._begin(self._order[self._at + 1 : self._at + 1 + self.prefetch])
        self._at += 1

    def _begin(self, several):
        for units in several:
            for u in units:
                u.begin()

    def forward(self, call: Callable[[], Any]) -> Any:
        self._at = 0
        for u in self.all:  # what a pass that was broken off left is old
            u.forget()
            u.let_go()
        for u in self.root:
            u.gather()
            u.put(True)
        try:
            made = call()
        finally:
            for u in self.root:
                u.put(False)
        for u in self.all:
            u.forget()
        learning = torch.is_grad_enabled()
        if not learning:
            for u in self.root:
                u.let_go()
        del self._order[self._at :]
        return at_backward(made, lambda: self._before_backward(None))

    def _before_backward(self, units):
        if not self._active:
            self._active = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)  # type: ignore[attr-defined]
        if units is None:
            for u in self.root:
                u.begin()
            self._begin(self._order[-1:])
            for u in self.root:
                u.gather()
            return
        for u in units:
            u.begin()
        if units in self._order:
            at = self._order.index(units)
            self._begin(reversed(self._order[max(0, at - self.prefetch) : at]))
        for u in units:
            u.gather()

    def _came(self, unit, lent):
        unit.arrived.append(lent)
        if len(unit.arrived) == unit.expected:
            self._send(unit)

    def _send(self, unit):
        unit.let_go()
        self._sent.append(unit.send())
        while len(self._sent) > self.MOST_SENT:
            self._settle()

    def _settle(self):
        unit, those, work = self._sent.pop(0)
        unit.settle(those, work)

    def _finish(self):
        self._active = False
        for u in self.all:
            if u.arrived:  # some had no part in the loss
                self._send(u)
        while self._sent:
            self._settle()
        for u in self.all:
            u.let_go()
            u.forget()

    def parameters(self) -> "List[torch.nn.Parameter]":
        return [p.parameter for u in self.all for p in u.lent]

    def whole_parameters(self) -> "Dict[str, torch.Tensor]":
        with torch.no_grad():
            return {name: t for u in self.all for name, t in u.whole_parameters().items()}
