"""What callers of other libraries write, and the same in our words."""

import difflib
import inspect


def _window(function, size):
    """flash-attn's window_size=(before, after) as our window."""
    try:
        before, after = (int(n) for n in size)
    except (TypeError, ValueError):
        return "window, the number of keys that a row sees, its own and those before; or (that, the number of keys after)"
    if before < 0:
        return "nothing: both sides are open" if after < 0 else "is_causal=True" if after == 0 else f"window=(2**31, {after})"
    said = f"window=({before + 1}, {max(after, 0)})" if after else f"window={before + 1}"
    return said + ", align='bottom-right'" if function == "attention" else said


def _mask(function, size):
    """The same as a mask of arrays."""
    try:
        before, after = (int(n) for n in size)
    except (TypeError, ValueError):
        return "mask='window:W' or mask='window:W+A', of W keys up to a row's own and A after it"
    if before < 0:
        return "nothing: both sides are open" if after < 0 else "mask='causal'" if after == 0 else f"mask='window:2147483648+{after}'"
    return f"mask='window:{before + 1}+{after}'" if after > 0 else f"mask='window:{before + 1}'"


_OF_BOTH = {
    "softmax_scale": "scale", "sm_scale": "scale", "cu_seqlens": "cu_seqlens_q", "cache_seqlens": "lengths", "block_table": "pages",
    "block_tables": "pages", "logits_soft_cap": "softcap", "s_aux": "sink", "sinks": "sink", "learnable_sink": "sink",
    "alibi": "alibi_slopes", "slopes": "alibi_slopes",
}  # fmt: skip
OF_TENSORS = {
    **_OF_BOTH, "causal": "is_causal", "window_size": _window, "sliding_window": _window, "dropout": "dropout_p",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse", "attention_mask": "attn_mask",
}  # fmt: skip


def _causal(function, said):
    return "mask='causal', or mask='causal:top-left' for torch's alignment" if said else "mask='full'"


OF_ARRAYS = {**_OF_BOTH, "alibi_slopes": "alibi", "causal": _causal, "is_causal": _causal, "window_size": _mask, "window": _mask, "attn_mask": "mask"}
OF_STEPS = {
    "batch_size": "batch", "seq_len": "len", "seqlen": "len", "sequence_length": "len", "length": "len", "context": "len", "dtype": "precision",
    "gpu": "device", "memory": "memory_gib", "checkpointing": "keep", "recompute": "keep", "optimizer": "adam",
    "gradient_accumulation": "accumulate", "world_size": "ranks",
}  # fmt: skip


def refuse(function, misspelt, meanings, module="gpu_headroom", also=()):
    """The error for keyword arguments that a function does not have. also: names that it takes as **more."""
    name, value = next(iter(misspelt.items()))
    known = [n for n, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
    known += also
    meant = meanings.get(name)
    if callable(meant):
        said = f"say {meant(function.__name__, value)}"
    else:
        close = [meant] if meant in known else difflib.get_close_matches(name, known, 1)
        said = f"say {close[0]}" if close else f"there are {', '.join(known)}"
    raise TypeError(f"{module}.{function.__name__} has no argument '{name}': {said}")


_DTYPES = {
    "float32": "float32", "fp32": "float32", "float16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
}  # fmt: skip
_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def _name(word):
    """The name of a dtype of torch, NumPy or JAX, or the word itself."""
    if isinstance(word, str):
        return word
    said = getattr(word, "name", None) or getattr(word, "__name__", None) or str(word)
    return said.rpartition(".")[2]


def dtype(word):
    """float32, float16 or bfloat16 of a word, or of a dtype of torch, NumPy or JAX; the name itself where it is another."""
    name = _name(word)
    return _DTYPES.get(name, name)


def quantise_to(word):
    """The C interface's word for what Q, K and V are rounded to: None or "fp8"."""
    if word is None:
        return 0
    if not isinstance(word, str):
        raise TypeError(f"quantise is a {type(word).__name__}: 'fp8', or None for nothing")
    if word != "fp8":
        raise ValueError(f"quantise is {word!r}: 'fp8', or None for nothing")
    return 1


def check_quantised(code, dtype):
    """Only bfloat16 is rounded to 8 bits, because the result is bfloat16."""
    if code and dtype != "bfloat16":
        raise TypeError(f"quantise='fp8' takes bfloat16 and gives bfloat16, and q is {dtype}: pass q, k and v as bfloat16")


def precision(word):
    """A precision as the C interface says it, of its own words and of dtypes; also of a list of them."""
    if isinstance(word, (list, tuple)):
        return [precision(one) for one in word]
    if word is None or isinstance(word, (bool, int, float)):
        return word
    name = _name(word)
    if name.startswith("float8_"):
        return "fp8"
    return _PRECISIONS.get(_DTYPES.get(name, name), name)
