"""Places of an unknown tensor that the program itself filled, so that they are not the largest: a spectrum's mean with 0, a token with -inf, a beam that is
not there yet with -1e9. Each number is asked for alone, so only small tensors are looked at."""
from . import library

ASKED = 1 << 12  # numbers


def least_places(twins, x):
    """A mask of the places of `x` that are known and not above 0; None where there are none, or too many numbers to ask for."""
    torch, n, size = twins.torch, x.numel(), x.element_size()
    if not 1 < n <= ASKED or not x.dtype.is_floating_point or not twins.on_card(x):
        return None
    held, begin = torch.empty(twins.span(x), dtype=x.dtype, device="cpu"), x.data_ptr()
    least = torch.zeros(len(held), dtype=torch.bool, device="cpu")
    known = [i for i in range(len(held)) if library.known(begin + i * size, size, held.data_ptr() + i * size) == 1]
    if not known:
        return None
    least[known] = held[known] <= 0
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
