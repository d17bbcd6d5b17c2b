"""The operators under torch.vmap: what is mapped over joins the batch, in one call; else (sinks, dropout, mapped pages) there is a call for each."""

import torch

_SMALL = ("sink", "cu_q", "cu_k", "pages", "random", "alibi")


def _first(t, dim, size):
    """t with what is mapped over as its first dimension."""
    return t.movedim(dim, 0) if dim is not None else t.expand(size, *t.shape)


def _joined(t, dim, size):
    return None if t is None else _first(t, dim, size).flatten(0, 1)


def _slopes(t, dim, size, batch):
    """[heads] stays what it is where all have the same; mapped, there is a row of them for each row of the batch."""
    if t is None or (dim is None and t.dim() == 1):
        return t
    if dim is not None and t.dim() == 2:
        t = _first(t, dim, size)[:, None].expand(-1, batch, -1)
        return t.flatten(0, 1)
    return _joined(t, dim, size)


def _each(operator, info, in_dims, arguments):
    of_one = lambda i: [t if dim is None else t.select(dim, i) for t, dim in zip(arguments, in_dims)]  # noqa: E731
    made = [operator(*of_one(i)) for i in range(info.batch_size)]
    return tuple(torch.stack(one) for one in zip(*made)), (0,) * len(made[0])


def _of(name, count):
    """The rule of an operator whose first `count` tensors are of the batch: of forward q, k and v, of backward what it was given and made, too."""
    operator = getattr(torch.ops.headroom, name)
    backward = count > 3

    def rule(info, in_dims, *arguments):
        size, small = info.batch_size, [n for n in _SMALL if not (backward and n == "pages")]
        tensors, dims = arguments[:count], in_dims[:count]
        more = dict(zip(small, arguments[count:])), dict(zip(small, in_dims[count:]))
        options = arguments[count + len(small) :]
        paged = more[0].get("pages") is not None
        q_at = 2 if backward else 0
        batch = tensors[q_at].shape[0] if dims[q_at] is None else tensors[q_at].movedim(dims[q_at], 0).shape[1]
        alone = more[0]["random"] is not None or (backward and more[0]["sink"] is not None) or more[1]["sink"] is not None
        if size == 0 or alone or (paged and (dims[1] is not None or dims[2] is not None)):
            return _each(operator, info, in_dims, arguments)
        joined = [t if paged and at in (1, 2) else _joined(t, dim, size) for at, (t, dim) in enumerate(zip(tensors, dims))]
        for n in ("cu_q", "cu_k", "pages"):
            if n in more[0]:
                more[0][n] = _joined(more[0][n], more[1][n], size)
        more[0]["alibi"] = _slopes(more[0]["alibi"], more[1]["alibi"], size, batch)
        *made, last = operator(*joined, *more[0].values(), *options)
        if backward:  # dsink, of which there is none
            return (*[t.unflatten(0, (size, -1)) for t in made], last), (0, 0, 0, None)
        return tuple(t.unflatten(0, (size, -1)) for t in (*made, last)), (0, 0)

    return rule


def register(library):
    """torch before 2.5 has no such rules: there it calls the operators once for each."""
    if hasattr(torch.library, "register_vmap"):
        torch.library.register_vmap("headroom::attention_forward", _of("attention_forward", 3), lib=library)
        torch.library.register_vmap("headroom::attention_backward", _of("attention_backward", 7), lib=library)
