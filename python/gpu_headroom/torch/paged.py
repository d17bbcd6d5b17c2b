"""attn_implementation="paged|headroom" of transformers: continuous batching (generate_batch), which packs sequences and keeps their keys in pages.

transformers gives names that it does not know lists of sequences and no mask, as it gives flash-attn's.
"""

import functools
import sys

import torch

from .functions import attention_varlen
from .imports import when_imported
from .sdpa import count

NAME = "paged|headroom"


def _refuse(module, why):
    raise ValueError(f"attn_implementation='{NAME}': {type(module).__name__} {why}")


def list_of(ends, windowed):
    """The list of this layer's sequences; a model with layers of both kinds has one for each."""
    if isinstance(ends, dict):
        ends = ends["sliding_attention" if windowed else "full_attention"]
    return ends


def _keep_its_name(module):
    """generate_batch() looks for flash-attn, or refuses a name that it does not know: ours is served."""
    manager = module.ContinuousBatchingManager
    theirs = getattr(manager, "switch_to_cb_friendly_attn", None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def switch(self, model, *arguments, **named):
        if model.config._attn_implementation != "headroom":
            return theirs(self, model, *arguments, **named)
        if "paged|sdpa" in sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS.valid_keys():  # transformers before 5.23
            model.set_attn_implementation(NAME)
            self._original_attn_impl = "headroom"

    manager.switch_to_cb_friendly_attn = switch


def register():
    when_imported("transformers.generation.continuous_batching.continuous_api", _keep_its_name)


def attend_paged(
    module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, sliding_window=None, softcap=None, s_aux=None, cache=None,
    cu_seq_lens_q=None, cu_seq_lens_k=None, block_table=None, position_bias=None, indices=None, block_indices=None, **kwargs,
):  # fmt: skip
    """transformers' interface: query [1, heads, tokens, head_dim], new keys and values beside it. The result is [1, tokens, heads, head_dim]."""
    if cache is None or cu_seq_lens_q is None:
        _refuse(module, "was called without a paged cache and lists of sequences, which generate_batch() prepares: use attn_implementation='headroom'")
    if attention_mask is not None or block_table is not None or dropout:
        _refuse(module, "was given a mask, a table of pages or dropout, which transformers gives other names alone: use 'paged|eager'")
    if position_bias is not None or indices is not None or block_indices is not None:
        _refuse(module, "adds a bias of positions to its scores, or chooses keys for each row: use 'paged|eager'")
    window = getattr(module, "sliding_window", None) or sliding_window or None
    lists = (list_of(ends, window is not None).to(torch.int32) for ends in (cu_seq_lens_q, cu_seq_lens_k))
    key, value = cache.update(
        key_states=key, value_states=value, layer_idx=module.layer_idx, read_index=kwargs["read_index"], write_index=kwargs["write_index"]
    )
    o = attention_varlen(
        query[0].transpose(0, 1), key, value, *lists, is_causal=window is None, window=window, scale=scaling, tf32=False,
        softcap=0.0 if softcap is None else float(softcap), sink=None if s_aux is None else s_aux.reshape(-1),
    )  # fmt: skip
    count(None)
    return o[None], None
