"""What a mask tensor says, found by one pass over it: all keys, causal, a window, padding, documents. Whatever it is more than that is said.

A tensor is read once: what was found is kept by its storage, its place in it and its version, as autograd counts changes. A tensor that was
made in inference mode has no version and is read in each call.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

OPEN = 1 << 31  # keys on a side of a window that has no end there
_MOST_KEPT = 256
A_BIAS = "attn_mask has numbers that are added to the scores (a bias, as ALiBi's or T5's): no kernel of ours adds one"


class Seen:
    """Which keys rows see: options of attention, the first and the end of the keys that any row sees, and documents, or None."""

    __slots__ = ("align", "cu_k", "cu_q", "first", "end", "is_causal", "window")

    def __init__(self, is_causal, window, align, first, end, cu_q=None, cu_k=None):
        self.is_causal, self.window, self.align, self.first, self.end = is_causal, window, align, first, end
        self.cu_q, self.cu_k = cu_q, cu_k


def _as_booleans(mask, padding):
    """(booleans, reason) of a mask with 0 where a key is seen and -inf, or the lowest finite number, where not. padding: what rows without a
    key give does not matter."""
    if mask.dtype == torch.bool:
        return mask, None
    if not mask.is_floating_point():
        return None, f"attn_mask is {mask.dtype}: booleans or floating-point numbers"
    seen = mask == 0
    lowest = mask == torch.finfo(mask.dtype).min
    if not (seen | lowest | (mask == -torch.inf)).all():
        return None, A_BIAS
    if not padding and lowest.any() and not seen.any(-1).all():
        return None, "attn_mask has rows of the lowest finite number alone: torch gives them the mean of all values"
    return seen, None


def _intervals(seen):
    """(first, end) int64 [batch, len_q] of the keys that each row sees, both 0 where it sees none; None where a row has a hole."""
    firsts, ends = [], []
    for one in seen:  # a sequence at a time: the pass needs memory of the mask's own size
        runs = (one[:, 1:] & ~one[:, :-1]).sum(-1)
        if one.shape[1]:
            runs = runs + one[:, 0]
        if (runs > 1).any():
            return None
        count = one.sum(-1)
        first = one.to(torch.uint8).argmax(-1) if one.shape[1] else count
        firsts.append(torch.where(count > 0, first, 0))
        ends.append(firsts[-1] + count)
    return torch.stack(firsts).cpu(), torch.stack(ends).cpu()


def _blocks(first, end):
    """Of one sequence: (begin, end) of queries and of keys of each run of rows that share keys, in order; None where keys are not in order."""
    rows = torch.nonzero(end > first)[:, 0]
    if rows.numel() == 0:
        return []
    of_row, to_row = first[rows], end[rows]
    new = torch.ones_like(rows, dtype=torch.bool)
    new[1:] = (of_row[1:] >= to_row[:-1]) | (rows[1:] != rows[:-1] + 1)
    number = new.cumsum(0) - 1
    count = int(number[-1]) + 1
    lowest = torch.full_like(rows, 1 << 40)[:count].scatter_reduce(0, number, of_row, "amin")
    highest = torch.zeros_like(rows)[:count].scatter_reduce(0, number, to_row, "amax")
    begins = rows[new]
    ends = torch.cat([rows[1:][new[1:]] - 1, rows[-1:]])
    last_of_each = torch.cat([rows[:-1][new[1:]], rows[-1:]])
    if (lowest[1:] < highest[:-1]).any():
        return None
    return torch.stack([begins, torch.minimum(ends, last_of_each) + 1, lowest, highest], 1).tolist()


def _band(blocks, first, end, align):
    """(before, after) of the window that every block has inside it, OPEN for a side without end; None where there is no such."""
    whole = []
    for of_sequence, low, high in zip(blocks, first, end):
        for q0, q1, k0, k1 in of_sequence:
            rows = torch.arange(q1 - q0, device=low.device)
            at = rows + (k0 if align == "top-left" else k1 - (q1 - q0))
            whole.append((at, low[q0:q1], high[q0:q1], k0, k1))
    if not whole:
        return OPEN, OPEN
    before = max((int((at - low + 1)[low > k0].max()) for at, low, _, k0, _ in whole if (low > k0).any()), default=OPEN)
    after = max((int((high - 1 - at)[high < k1].max()) for at, _, high, _, k1 in whole if (high < k1).any()), default=OPEN)
    if before < 1 or after < 0:
        return None
    for at, low, high, k0, k1 in whole:  # the same, made of what was found: equal in every row, or it is something else
        made_low, made_high = (at - before + 1).clamp(min=k0), (at + after + 1).clamp(max=k1)
        if not (torch.equal(made_low, low) and torch.equal(made_high, high)):
            return None
    return before, after


def _lists(blocks, len_q, batch, device):
    """cu_seqlens_q and cu_seqlens_k, int32 [batch, documents + 1]: rows between blocks get no keys, and keys between blocks no rows."""
    queries, keys = [], []
    for of_sequence in blocks:
        of_q, of_k = [0], [0]
        for q0, q1, k0, k1 in of_sequence:
            if of_q[-1] != q0:
                of_q.append(q0)
                of_k.append(of_k[-1])
            if of_k[-1] != k0:
                of_q.append(q0)
                of_k.append(k0)
            of_q.append(q1)
            of_k.append(k1)
        if of_q[-1] != len_q:  # rows behind the last block
            of_q.append(len_q)
            of_k.append(of_k[-1])
        queries.append(of_q)
        keys.append(of_k)
    most = max(map(len, queries))
    made = [torch.tensor([one + one[-1:] * (most - len(one)) for one in some], dtype=torch.int32, device=device) for some in (queries, keys)]
    return [t.expand(batch, -1).contiguous() for t in made]


def _find(mask, batch, len_q, len_k, padding):
    """A Seen, or the reason why there is none."""
    if 0 in (batch, len_q, len_k):  # nothing says anything
        return Seen(False, None, "top-left", 0, len_k)
    if mask.shape[1] > 1 and mask.stride(1) != 0 and not (mask == mask[:, :1]).all():
        return _as_booleans(mask, padding)[1] or "attn_mask differs between heads"
    mask = mask[:, 0]
    seen, reason = _as_booleans(mask if mask.stride(0) else mask[:1], padding)
    if reason is not None:
        return reason
    found = _intervals(seen.expand(-1, len_q, len_k))
    if found is None:
        return "attn_mask has rows with a hole between the keys that they see"
    blocks = [_blocks(*one) for one in zip(*found)]
    if any(one is None for one in blocks):
        return "attn_mask is no window, padding or documents: rows of different blocks share keys"
    for align in ("bottom-right", "top-left"):
        band = _band(blocks, *found, align)
        if band is not None:
            break
    else:
        return "attn_mask is no window, padding or documents: its rows begin or end at keys that no such mask has"
    is_causal = band == (OPEN, 0)
    window = None if is_causal or band == (OPEN, OPEN) else band
    one = blocks[0][0] if blocks[0] else None
    if one is not None and one[:2] == [0, len_q] and all(others == [one] for others in blocks):
        return Seen(is_causal, window, align, one[2], one[3])
    return Seen(is_causal, window, align, 0, len_k, *_lists(blocks, len_q, batch, mask.device))


# By storage, place and shape: (what keeps the storage's name from being given again, version, a Seen or a reason, a CPU's copy). A write by
# .data or NumPy changes no version: on a CPU the mask is compared with its copy.
_kept = {}
_LARGE = 64 << 20  # bytes of a mask that is not copied, but read each time


def is_recorded():
    """Whether torch.jit.trace or make_fx records operators now: what a tensor says would be written down as if it were always so."""
    if torch._C._get_tracing_state() is not None:
        return True
    proxies = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "PROXY", None)
    early = getattr(torch._ops, "_get_dispatch_mode_pre_dispatch", None)  # of make_fx(…, pre_dispatch=True)
    return proxies is not None and (torch._C._get_dispatch_mode(proxies) is not None or (early is not None and early(proxies) is not None))


def is_faked():
    """Whether operators make fake tensors now: what a mask says cannot be asked, be it a real one."""
    fake = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "FAKE", None)
    return fake is not None and torch._C._get_dispatch_mode(fake) is not None


def read(mask, q, k, padding=False):
    """A Seen of attn_mask for q and k of four dimensions, or the reason why this call is torch's. padding: rows that see no key are padding."""
    if torch.compiler.is_compiling():
        return "a mask given as a tensor (attn_mask) cannot be read in compiled code"
    if is_recorded():
        return "attn_mask is recorded (torch.jit.trace, make_fx): another mask may come when what is recorded runs"
    if type(mask) not in (torch.Tensor, torch.nn.Parameter) or mask.layout != torch.strided:
        return f"attn_mask is a {type(mask).__name__} that cannot be read"
    if torch._C._functorch.is_functorch_wrapped_tensor(mask):
        return "attn_mask is inside torch.func's transforms (vmap, grad), where its numbers cannot be read"
    if mask.is_meta:
        return "attn_mask is on meta, where there are no numbers to read"
    if is_faked():
        return "attn_mask is inside a FakeTensorMode, where its numbers cannot be read"
    if mask.device != q.device:
        return f"attn_mask is on {mask.device}, q is on {q.device}"
    if mask.requires_grad and torch.is_grad_enabled():
        return A_BIAS  # its gradient is asked for
    batch, len_q, len_k = q.shape[0], q.shape[2], k.shape[2]
    given = mask.detach()
    try:
        mask = given[(None,) * (4 - mask.dim())].expand(batch, -1, len_q, len_k)
    except RuntimeError:
        return f"attn_mask is {tuple(mask.shape)}, which does not fit {len_q} queries and {len_k} keys in {batch} sequences"
    if mask.shape[1] not in (1, q.shape[1]):
        return f"attn_mask has {mask.shape[1]} heads, q has {q.shape[1]}"
    key = None
    if not mask.is_inference() and not (mask.is_cpu and given.numel() * given.element_size() > _LARGE):
        storage = StorageWeakRef(mask.untyped_storage())
        key = storage.cdata, mask.storage_offset(), mask.shape, mask.stride(), mask.dtype, padding
        known = _kept.get(key)
        if known is not None and known[1] == mask._version and (known[3] is None or torch.equal(known[3], given)):
            return known[2]
    if mask.is_cuda and torch.cuda.is_current_stream_capturing():
        return "attn_mask was not read before this CUDA graph was captured: make the same call once before"
    with torch.no_grad():
        found = _find(mask, batch, len_q, len_k, padding)
    if key is not None:
        if len(_kept) >= _MOST_KEPT:
            for gone in [name for name, one in _kept.items() if one[0].expired()] or list(_kept):
                del _kept[gone]
        _kept[key] = storage, mask._version, found, given.clone() if mask.is_cpu else None
    return found
