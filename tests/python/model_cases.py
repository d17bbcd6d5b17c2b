"""What the tests of attn_implementation="headroom" share: tiny models of transformers with random weights, their inputs, and a step in FP64.

Without torch or transformers they skip: exit code 77.
"""

import contextlib
import copy
import importlib.util
import sys
import unittest

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from draws import kept
from torch.overrides import TorchFunctionMode

from gpu_headroom.torch import models

OLD = importlib.util.find_spec("transformers.masking_utils") is None  # before 4.53: masks are tensors, and fewer models ask the interface
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
LENGTH, WINDOW = 48, 16


class InDouble(TorchFunctionMode):
    """A model in float64 whose own casts to float32 are not made."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def of(x):
            return torch.float64 if x is torch.float32 else x

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*[of(x) for x in args], **{name: of(x) for name, x in (kwargs or {}).items()})


def kinds():
    """(name, model's class, config's class, settings)"""
    ends = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256, **ends)
    grouped = dict(sizes, num_key_value_heads=2)
    wide, both = dict(grouped, head_dim=24), ["sliding_attention", "full_attention"]
    every = (
        ("Llama", "LlamaForCausalLM", wide), ("Qwen2", "Qwen2ForCausalLM", grouped), ("Qwen3", "Qwen3ForCausalLM", wide),
        ("Gemma2", "Gemma2ForCausalLM", dict(wide, sliding_window=WINDOW, attn_logit_softcapping=3.0, query_pre_attn_scalar=24)),
        ("Gemma3Text", "Gemma3ForCausalLM", dict(wide, sliding_window=WINDOW, query_pre_attn_scalar=24, layer_types=both)),
        ("Mistral", "MistralForCausalLM", dict(wide, sliding_window=WINDOW)), ("Phi3", "Phi3ForCausalLM", dict(grouped, sliding_window=WINDOW)),
        ("Olmo2", "Olmo2ForCausalLM", grouped),
        ("GptOss", "GptOssForCausalLM", dict(wide, num_local_experts=4, num_experts_per_tok=4, sliding_window=WINDOW, layer_types=both,
                                             rope_parameters={"rope_type": "default", "rope_theta": 1e4})),
        ("GPT2", "GPT2LMHeadModel", dict(vocab_size=300, n_embd=64, n_layer=2, n_head=4, n_positions=256, **ends)),
        ("ModernBert", "ModernBertForMaskedLM", dict(sizes, local_attention=WINDOW, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2)),
        ("Bert", "BertForMaskedLM", sizes),
        ("T5", "T5ForConditionalGeneration", dict(vocab_size=300, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0,
                                                  pad_token_id=0, eos_token_id=2)),
        ("ViT", "ViTForImageClassification", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, num_labels=300,
                                                 patch_size=8)),
    )  # fmt: skip
    for name, model, settings in every:
        config = getattr(transformers, name + "Config", None)
        if OLD and name in ("ModernBert", "Bert", "T5", "ViT"):  # refused in a sentence, or never asked
            continue
        if config is not None and hasattr(transformers, model):
            yield name, getattr(transformers, model), config, settings


def made(model, config, attention, dtype, device, state=None):
    config = copy.deepcopy(config)
    net = model._from_config(config, attn_implementation=attention)
    assert net.config._attn_implementation == attention
    if hasattr(net, "set_experts_implementation"):
        try:
            net.set_experts_implementation("eager")  # the grouped product has no float64
        except (ValueError, KeyError):
            pass
    if state is not None:
        net.load_state_dict(state)
    return net.to(device, dtype).eval()


def inputs_of(name, padding, device):
    """(inputs, which positions are real)"""
    g = torch.Generator().manual_seed(3)
    if name == "ViT":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=g, dtype=torch.float64).to(device)}, None
    inputs, real = {"input_ids": torch.randint(3, 300, (2, LENGTH), generator=g)}, torch.ones(2, LENGTH, dtype=torch.bool)
    if padding in ("left", "right"):
        real[1, slice(0, 13) if padding == "left" else slice(30, None)] = False
        inputs["attention_mask"] = real.long()
    if padding == "packed":
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in (20, 18, 10)])[None].expand(2, -1)
    if name == "T5":
        inputs["decoder_input_ids"], real = inputs["input_ids"][:, :20], None
    return {k: v.to(device) for k, v in inputs.items()}, real if real is None else real.to(device)


def step(net, inputs, real, dropped=False):
    """Logits of real positions, and every gradient of a sum of them, in float64. dropped: in training, where attention drops what Dropped says."""
    dtype = next(net.parameters()).dtype
    with Dropped() if dropped else contextlib.nullcontext():
        logits = net.train(dropped)(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}).logits
        logits = logits if real is None else logits[real]
        up = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(logits.device, logits.dtype)
        (logits * up).sum().backward()
    return [logits.detach().double().cpu()], {n: p.grad.double().cpu() for n, p in net.named_parameters() if p.grad is not None}


class Dropped:
    """Within it the n-th dropout of probabilities has the seed [n, 0]: in our calls, and in eager attention, which is given our mask."""

    def __enter__(self):
        self.before = models.seed_of, torch.nn.functional.dropout
        models.seed_of, torch.nn.functional.dropout = self.seed_of, self.dropout
        self.ours = self.eagers = 0
        return self

    def __exit__(self, *_):
        models.seed_of, torch.nn.functional.dropout = self.before

    def seed_of(self, q, dropout, seed=None):
        if dropout == 0:
            return None
        self.ours += 1
        return torch.tensor([self.ours, 0], device=q.device)

    def dropout(self, x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        self.eagers += 1
        return x * torch.from_numpy(kept(self.eagers, 0, p, *x.shape)).to(x.device, x.dtype)


def apart(got, exact):
    """The mean over tensors of the error's size beside the tensor's."""
    sizes = [w.norm().item() for w in exact]
    return sum((g - w).norm().item() / n for g, w, n in zip(got, exact, sizes) if n > 1e-12) / len(sizes)


class Base(unittest.TestCase):
    def twins(self, name, model, settings):
        """The same tiny model with eager attention and with ours."""
        config = getattr(transformers, name + "Config", None)
        if config is None or not hasattr(transformers, model):
            self.skipTest(f"transformers {transformers.__version__} has no {model}")
        model, config = getattr(transformers, model), config(**settings)
        torch.manual_seed(1)
        eager = made(model, config, "eager", torch.float32, "cpu")
        return eager, made(model, config, "headroom", torch.float32, "cpu", eager.state_dict())
