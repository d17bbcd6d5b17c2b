"""A module whose matrices are shared out: each rank keeps its part, and a whole one is there only while its layer runs."""

import contextlib
from typing import Any, Dict, List, Optional, Sequence

import torch

from ... import library as lib
from .comm import Comm
from .data_parallel import Gradients, at_backward, send_from_rank_0
from .joining import join
from .units import Units
from .work import Work


class _Shared:
    """A parameter that is shared out: `parameter` holds this rank's part, flat; parts are equal, the last ones end with zeros."""

    def __init__(self, name, parameter, comm, compute_dtype):
        self.name, self.parameter, self.comm = name, parameter, comm
        self.shape, self.count = parameter.shape, parameter.numel()
        self.dtype = compute_dtype or parameter.dtype
        self.part = -(-self.count // comm.ranks)
        self.begun: Optional[Work] = None  # a gathering that was begun before it is needed
        self.kept = False  # backward needs it again
        self.before: "List[_Shared]" = []  # those whose layers ran just before this one's
        self.uses = 0  # uses of it whose gradients have not come
        self.sum: Optional[torch.Tensor] = None  # sum of the gradients that came
        self.work: Optional[Work] = None
        with torch.no_grad():
            parameter.data = self._rows(parameter.detach())[comm.rank].clone()

    def _rows(self, whole):
        padded = whole.new_zeros(self.comm.ranks * self.part)
        padded[: self.count] = whole.reshape(-1)
        return padded.view(self.comm.ranks, self.part)

    def begin(self):
        """The gathering of the whole, which begins now unless it has begun."""
        if self.begun is None:
            self.begun = self.comm.all_gather(self.parameter.detach().to(self.dtype), later=True, what=self.name)
        return self.begun

    def gathered(self):
        """The whole, in the type of computation."""
        begun, self.begun = self.begin(), None
        return begun.wait().view(-1)[: self.count].view(self.shape)

    def came(self, gradient):
        """One of the uses' gradients: they are added in the order in which they come, as autograd does, and sent when all are there."""
        self.sum = gradient if self.sum is None else self.sum + gradient
        self.uses -= 1
        if self.uses == 0:
            self.send()

    def send(self):
        self.work = self.comm.reduce_scatter(self._rows(self.sum), "mean", later=True, what="gradient of " + self.name)
        self.sum = None

    def settle(self):
        if self.work is None:
            return
        gradient = self.work.wait().to(self.parameter.dtype)
        self.work = None
        self.parameter.grad = gradient if self.parameter.grad is None else self.parameter.grad + gradient


class _Lend(torch.autograd.Function):
    """A part that goes in, the whole that comes out; the whole's gradient goes to the ranks, and backward's end puts the part's in place."""

    @staticmethod
    def forward(ctx, part, shared, root):
        ctx.shared, ctx.root = shared, root
        return shared.gathered().detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.root.begin()
        ctx.shared.came(gradient)
        return None, None, None


class _Kept:
    """What autograd keeps instead of a whole matrix: how to see it in one that is gathered again."""

    def __init__(self, shared, seen):
        self.shared, self.geometry = shared, (seen.shape, seen.stride(), seen.storage_offset())


class _Outer:
    """What hooks around the layer (a checkpoint's) made of a tensor that is no matrix of ours."""

    def __init__(self, unpack, kept):
        self.unpack, self.kept = unpack, kept


def _outer_hooks():
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(False)


class FullyShardedDataParallel(torch.nn.Module):
    """`module` with its matrices shared out among the ranks, from rank 0's values; each is whole only while its layer runs, forward or backward.

    Gradients are the ranks' mean when backward() returns; a shared parameter and its gradient are this rank's part, flat, in the parameter's
    own type. Vectors stay on every rank. compute_dtype: in which matrices travel and send their gradients, and their layers take inputs and
    compute. prefetch: how many layers ahead are gathered. Any optimizer that treats every element alike has the bits of one process.
    whole_parameters() has the whole.

    units: modules, such as a model's blocks, whose parameters travel together, vectors too, in one call each; what is in none of them is whole for
    the whole pass. Faster where layers are many and small. A unit may be compiled first (block.compile()).
    """

    def __init__(
        self,
        module: torch.nn.Module,
        comm: Optional[Comm] = None,
        compute_dtype: Optional[torch.dtype] = None,
        prefetch: int = 1,
        units: Optional[Sequence[torch.nn.Module]] = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.comm = join() if comm is None else comm
        self._dtype = compute_dtype
        for m in module.modules():
            if isinstance(m, torch.nn.MultiheadAttention):
                raise ValueError("torch.nn.MultiheadAttention reads the weights of a layer that it does not call: they cannot be shared out")
        self._prefetch, self._at = lib.whole(prefetch, "prefetch", 0, 2**20, "layers that are gathered ahead"), 0
        self._order: "List[torch.nn.Module]" = []  # layers of the last forward pass
        self._units: Optional[Units] = None
        if units is not None:
            send_from_rank_0(self.comm, module)
            self._units = Units(module, list(units), self.comm, compute_dtype, self._prefetch)
            return
        shared: "Dict[int, _Shared]" = {}
        layers = [m for m in module.modules() if any(_matrix(p) for p in m._parameters.values())]
        send_from_rank_0(self.comm, module)
        for name, p in module.named_parameters():
            if _matrix(p):
                shared[id(p)] = _Shared(name, p, self.comm, compute_dtype)
        self._shared = {id(s.parameter): s for s in shared.values()}
        for layer in layers:
            self._wrap(layer)
        rest = {name: p for name, p in module.named_parameters() if p.requires_grad and id(p) not in self._shared}
        self._gradients = Gradients(self.comm, rest, None)
        self._active = False

    def _wrap(self, layer):
        own = [(name, self._shared[id(p)]) for name, p in layer._parameters.items() if p is not None and id(p) in self._shared]
        forward = layer.forward

        def with_whole(*arguments, **named):
            if self._dtype is not None:  # a norm whose vector has its own type gives that type
                arguments, named = tuple(self._as_computed(x) for x in arguments), {k: self._as_computed(x) for k, x in named.items()}
            with self._lent(layer, own):
                return forward(*arguments, **named)

        layer.forward = with_whole

    def _as_computed(self, x):
        return x.to(self._dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    @contextlib.contextmanager
    def _lent(self, layer, own):
        self._ahead(layer, own)
        wholes, cast = {}, {}
        for name, s in own:
            learns = torch.is_grad_enabled() and s.parameter.requires_grad
            whole = _Lend.apply(s.parameter, s, self) if learns else s.gathered()
            s.uses += learns
            wholes[name] = whole
            layer.__dict__[name] = whole  # found before the parameter of that name
        outer = _outer_hooks()
        for name, p in layer._parameters.items():
            if p is not None and id(p) not in self._shared and p.dtype != self._dtype and self._dtype is not None:
                cast[name] = layer.__dict__[name] = p.to(self._dtype)
        storages = {w.untyped_storage().data_ptr(): s for (_, s), w in zip(own, wholes.values())}

        def keep(t):
            s = storages.get(t.untyped_storage().data_ptr()) if isinstance(t, torch.Tensor) and t.numel() else None
            if s is not None:
                s.kept = True
            return _Kept(s, t) if s is not None else t if outer is None else _Outer(outer[1], outer[0](t))

        try:
            with torch.autograd.graph.saved_tensors_hooks(keep, _again):
                yield
        finally:
            for name in (*wholes, *cast):
                del layer.__dict__[name]

    def _ahead(self, layer, own):
        """Begins to gather the layers that followed this one in the last forward pass: the same on every rank."""
        if torch._C._current_graph_task_id() != -1:
            return  # a checkpoint's forward pass, within backward
        if self._at < len(self._order) and self._order[self._at] is layer:
            for later in self._order[self._at + 1 : self._at + 1 + self._prefetch]:
                for s in self._of(later):
                    s.begin()
        else:  # another way than last time
            self._forget()
            del self._order[self._at :]
            self._order.append(layer)
        before = self._order[max(0, self._at - self._prefetch) : self._at]
        for _, s in own:
            s.before = [one for m in reversed(before) for one in self._of(m)]
        self._at += 1

    def _of(self, layer):
        return [self._shared[id(p)] for p in layer._parameters.values() if p is not None and id(p) in self._shared]

    def _forget(self):
        """What was gathered ahead and not used: an update would make it old."""
        for s in self._shared.values():
            s.begun = None

    def begin(self) -> None:
        self._gradients.begin()
        if not self._active:
            self._active = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)  # type: ignore[attr-defined]

    def _finish(self):
        self._active = False
        for s in self._shared.values():
            if s.sum is not None:  # some of its uses had no part in the loss
                s.send()
        for s in self._shared.values():
            s.settle()
            s.uses, s.kept = 0, False
        self._forget()

    def forward(self, *arguments: Any, **named: Any) -> Any:
        if self._units is not None:
            return self._units.forward(lambda: self.module(*arguments, **named))
        self._at = 0
        self._forget()
        made = self.module(*arguments, **named)
        self._forget()
        return at_backward(made, self.begin)

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_, by the norm of whole gradients, which it returns. Every rank calls it."""
        if self._units is not None:
            parts, vectors = [p.grad for p in self._units.parameters() if p.grad is not None], []
        else:
            parts = [s.parameter.grad for s in self._shared.values() if s.parameter.grad is not None]
            vectors = [p.grad for p in self._gradients.parameters if p.grad is not None]
        none = torch.zeros((), device="cpu")
        squares = [torch.stack([g.float().square().sum() for g in some]).sum().cpu() if some else none for some in (parts, vectors)]
        norm = (self.comm.all_reduce(squares[0], what="squares of gradients") + squares[1]).sqrt()
        factor = (float(max_norm) / (norm + 1e-6)).clamp(max=1.0).item()
        for g in (*parts, *vectors):
            g.mul_(factor)
        return norm

    def whole_parameters(self) -> "Dict[str, torch.Tensor]":
        """Every parameter by its name, whole, in its own type. Every rank calls it."""
        if self._units is not None:
            return self._units.whole_parameters()
        found: "Dict[str, torch.Tensor]" = {}
        with torch.no_grad():
            for name, p in self.module.named_parameters(remove_duplicate=False):
                s = self._shared.get(id(p))
                found[name] = p.detach().clone() if s is None else self.comm.all_gather(p.detach(), what=name).view(-1)[: s.count].view(s.shape)
        return found


def _matrix(p) -> bool:
    return p is not None and p.dim() > 1


def _again(kept):
    if isinstance(kept, _Outer):
        return kept.unpack(kept.kept)
    if not isinstance(kept, _Kept):
        return kept
    s = kept.shared
    whole = s.gathered()
    for before in s.before:
        if before.kept:
            before.begin()
    return whole.as_strided(*kept.geometry)
