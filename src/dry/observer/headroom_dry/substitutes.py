"""What `headroom forecast --try` changes from outside. HEADROOM_DRY_TRY names substitutes, by commas; each marks what it replaced and how many, or
why it cannot. None prints anything."""
import functools
import gc
import os

from . import library

_done = {}  # a substitute's word: how many it replaced
_refused = {}


def replaced(word, text, count=1):
    _done[word] = _done.get(word, 0) + count
    library.mark("replaced", f"{word}: {text}", _done[word])


def cannot(word, why):
    if _refused.get(word) != why:
        _refused[word] = why
        library.mark("cannot", f"{word}: {why}")


def begin(torch):
    words = [w for w in os.environ.get("HEADROOM_DRY_TRY", "").split(",") if w]
    for word in words:
        if word in SUBSTITUTES:
            SUBSTITUTES[word](torch)
        else:
            cannot(word, "no substitute has this name")
    if words:
        library.at_end(lambda: [cannot(w, "the program made nothing that it replaces") for w in words if w not in _done and w not in _refused])


def adamw_fused(torch):
    """Adam and AdamW update with one kernel for many parameters: no temporaries of the size of a group."""
    for cls in (torch.optim.AdamW, torch.optim.Adam):
        if "__init__" not in vars(cls):
            continue
        _fuse(torch, cls)


_being_made = set()  # ids: AdamW is made by Adam, which is wrapped too


def _fuse(torch, cls):
    init = cls.__init__

    @functools.wraps(init)
    def fused(self, params, *args, **kwargs):
        if type(self) not in (torch.optim.AdamW, torch.optim.Adam) or id(self) in _being_made:
            return init(self, params, *args, **kwargs)
        if kwargs.get("fused"):
            cannot("adamw-fused", f"{type(self).__name__} is fused already")
            return init(self, params, *args, **kwargs)
        params = list(params)
        _being_made.add(id(self))
        try:
            result = init(self, params, *args, **{**kwargs, "fused": True, "foreach": None})
        except (RuntimeError, TypeError) as e:
            cannot("adamw-fused", str(e).splitlines()[0])
            return init(self, params, *args, **kwargs)
        finally:
            _being_made.discard(id(self))
        replaced("adamw-fused", f"{type(self).__name__}(fused=True)")
        return result
    cls.__init__ = fused


def adamw_8bit(torch):
    """AdamW's moments in 8 bits, by bitsandbytes where it is installed; else tensors of the sizes that bitsandbytes would take."""
    for cls in (torch.optim.AdamW, torch.optim.Adam):
        def new(cls_, params=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=None, *args, _of=cls, **kwargs):
            if cls_ not in (torch.optim.AdamW, torch.optim.Adam):
                return object.__new__(cls_)
            decay = (1e-2 if cls_ is torch.optim.AdamW else 0.0) if weight_decay is None else weight_decay
            try:
                from bitsandbytes.optim import Adam8bit, AdamW8bit
                made, by = AdamW8bit if cls_ is torch.optim.AdamW else Adam8bit, "bitsandbytes"
            except Exception:
                made, by = sized_8bit(torch), "sizes of bitsandbytes, which is not installed"
            optimizer = made(params, lr=float(lr), betas=tuple(float(b) for b in betas), eps=eps, weight_decay=decay)
            replaced("adamw-8bit", f"{cls_.__name__} by {made.__name__} ({by})")
            return optimizer
        cls.__new__ = staticmethod(new)


def sized_8bit(torch):
    class AdamW8bit(torch.optim.Optimizer):
        """The tensors of bitsandbytes' optimizer: 8 bits an element and a scale for 256 of them, FP32 below 4096 elements. It updates nothing."""

        def __init__(self, params, lr, betas, eps, weight_decay):
            super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
            self.tables = {}

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None or self.state[p]:
                        continue
                    small = p.numel() < 4096
                    if not small and p.device not in self.tables:
                        self.tables[p.device] = [torch.zeros(256, device=p.device) for _ in range(2)]
                    state = self.state[p]
                    for i in (1, 2):
                        state[f"state{i}"] = torch.zeros_like(p, dtype=torch.float32 if small else torch.uint8)
                    if not small:
                        for i in (1, 2):
                            state[f"qmap{i}"] = self.tables[p.device][i - 1]
                            state[f"absmax{i}"] = torch.zeros((p.numel() + 255) // 256, device=p.device)
            return loss
    return AdamW8bit


def _before_optimizer(torch, once):
    """`once` is called before the first optimizer takes its parameters: models are there, and nothing has run."""
    init = torch.optim.Optimizer.__init__
    called = []

    @functools.wraps(init)
    def first(self, params, *args, **kwargs):
        if not called:
            called.append(True)
            once()
        return init(self, params, *args, **kwargs)
    torch.optim.Optimizer.__init__ = first


def _modules(torch):
    module = torch.nn.Module
    return [m for m in gc.get_objects() if issubclass(type(m), module)]


def checkpoint(torch):
    """The items of the largest list of equal modules run again in the backward pass; only their inputs are kept."""
    from torch.utils.checkpoint import checkpoint as run_again

    def once():
        best, most = None, 0
        for several in _modules(torch):
            if not isinstance(several, (torch.nn.ModuleList, torch.nn.Sequential)) or len(several) < 2:
                continue
            items = list(several)
            if len({type(m) for m in items}) == 1:
                size = sum(p.numel() for m in items for p in m.parameters())
                if size > most:
                    best, most = items, size
        if not best:
            return cannot("checkpoint", "the model has no list of equal modules")
        if any(getattr(m, "gradient_checkpointing", False) for m in best):
            return cannot("checkpoint", f"{type(best[0]).__name__} is checkpointed already")
        for m in best:
            m.forward = _again(torch, run_again, m, m.forward)
        for m in _modules(torch):
            config = getattr(m, "config", None)
            if getattr(config, "use_cache", None) is True:
                config.use_cache = False
        replaced("checkpoint", f"{type(best[0]).__name__} with torch.utils.checkpoint(use_reentrant=False)", len(best))
    _before_optimizer(torch, once)


def _again(torch, run_again, module, forward):
    @functools.wraps(forward)
    def checkpointed(*args, **kwargs):
        if module.training and torch.is_grad_enabled():
            return run_again(forward, *args, use_reentrant=False, **kwargs)
        return forward(*args, **kwargs)
    return checkpointed


def bf16(torch):
    """Parameters in bfloat16: weights, gradients and moments take half."""
    def once():
        count = 0
        for m in _modules(torch):
            for p in m._parameters.values():
                if p is not None and p.dtype is torch.float32 and type(p) is torch.nn.Parameter:
                    p.data = p.data.to(torch.bfloat16)
                    count += 1
        if count:
            replaced("bf16", "parameters from float32", count)
        else:
            cannot("bf16", "no parameter is in float32")
    _before_optimizer(torch, once)


def sdpa(torch):
    """PyTorch's attention calls run headroom's kernels."""
    try:
        from gpu_headroom.torch import replace_sdpa
    except Exception as e:
        return cannot("sdpa", f"gpu_headroom is not installed for this Python ({type(e).__name__})")
    scope = replace_sdpa()
    seen = scope.__enter__()

    def told():
        calls = seen.served
        if calls:
            replaced("sdpa", "calls of scaled_dot_product_attention", calls)
        else:
            cannot("sdpa", str(seen.explain()) or "no call was replaced")
    library.at_end(told)


SUBSTITUTES = {"adamw-fused": adamw_fused, "adamw-8bit": adamw_8bit, "checkpoint": checkpoint, "bf16": bf16, "sdpa": sdpa}
