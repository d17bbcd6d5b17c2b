"""Places of an unknown tensor that the program itself filled, so that they are not the largest: a spectrum's mean with 0, a token with -inf, a beam that is
not there yet with -1e9. Each number is asked for alone, so only small tensors are looked at, and only those whose first row has such a place."""
from . import library

ASKED = 1 << 12  # numbers


def least_places(twins, x, dim):
    """A mask of the places of `x` that are known and not above 0; None where its first row along `dim` has none, or there are too many numbers to ask for."""
    torch, n, size = twins.torch, x.numel(), x.element_size()
    if not 1 < n <= ASKED or not x.dtype.is_floating_point or not twins.on_card(x):
        return None
    span, begin = twins.span(x), x.data_ptr()
    held = torch.empty(span, dtype=x.dtype, device="cpu")
    into = held.data_ptr()

    def known(places):
        return [i for i in places if library.known(begin + i * size, size, into + i * size) == 1]

    step = x.stride(dim)
    if not known(range(0, x.shape[dim] * step, step) if step else [0]):  # a router's numbers, which are asked for often
        return None
    least = torch.zeros(span, dtype=torch.bool, device="cpu")
    found = known(range(span))
    least[found] = held[found] <= 0
    return torch.as_strided(least, x.shape, x.stride(), 0) if least.any() else None


def keep_parts(twins, joined, parts, dim):
    """`joined` is made of `parts`, some of which are known: these stay known in it."""
    if joined.numel() > ASKED or not joined.dtype.is_floating_point or not twins.on_card(joined):
        return
    at = 0
    for part in parts:
        if part.dim() != joined.dim():  # an old kind of emptiness
            continue
        n = part.shape[dim]
        if n and twins.on_card(part) and part.dtype is joined.dtype:
            value, state = twins.twin(part)
            if state == 1:
                twins.keep(joined.narrow(dim, at, n), value, state)
        at += n
