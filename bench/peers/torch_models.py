"""Models of transformers with attn_implementation="headroom", none of them changed, random weights, sizes that Hopper's kernels serve.

    python bench/peers/torch_models.py                     # a GPU where there is one; about a minute
    python bench/peers/torch_models.py --length 96         # a CPU

For each kind: errors of logits and of gradients against FP64, as a multiple of eager attention's, and calls served of calls made. Of the
kinds with a cache: whether the tokens are eager's. With dropout, eager attention drops what ours does. Prints a table; the last line counts the
kinds whose calls were all served.
PYTHONPATH=python and HEADROOM_LIBRARY=build/release/libheadroom.so, or an installed wheel.
"""

import argparse
import os
import sys
import time

import torch
import transformers

from gpu_headroom.torch import sdpa

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "python"))
from model_cases import InDouble, apart, made, step  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMIT = 1.5


def kinds(length):
    """(name, model's class, settings, what is asked)"""
    ends = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    sizes = dict(vocab_size=1000, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, max_position_embeddings=4096, **ends)
    grouped, window, both = dict(sizes, num_key_value_heads=2), length // 4, ["sliding_attention", "full_attention"]
    wide = dict(grouped, head_dim=128)
    mistral, gemma = dict(wide, sliding_window=window), dict(grouped, head_dim=256, sliding_window=window, query_pre_attn_scalar=256)
    gpt2 = dict(vocab_size=1000, n_embd=512, n_layer=2, n_head=8, n_positions=4096, **ends)
    return (
        ("Llama", "LlamaForCausalLM", wide, "plain"),
        ("Llama, packed", "LlamaForCausalLM", wide, "packed"),
        ("Qwen2", "Qwen2ForCausalLM", grouped, "right"),
        ("Qwen3", "Qwen3ForCausalLM", wide, "left"),
        ("Gemma2", "Gemma2ForCausalLM", dict(gemma, attn_logit_softcapping=5.0), "plain"),
        ("Gemma3Text", "Gemma3ForCausalLM", dict(gemma, layer_types=both), "right"),
        ("Mistral, window < length", "MistralForCausalLM", mistral, "left"),
        ("Phi3", "Phi3ForCausalLM", dict(grouped, sliding_window=window), "plain"),
        ("GptOss", "GptOssForCausalLM", dict(grouped, head_dim=64, num_local_experts=4, num_experts_per_tok=4, sliding_window=window, layer_types=both,
                                             rope_parameters={"rope_type": "default", "rope_theta": 1e4}), "plain"),
        ("Olmo2", "Olmo2ForCausalLM", grouped, "plain"),
        ("ModernBert", "ModernBertForMaskedLM", dict(sizes, local_attention=window, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2), "right"),
        ("Bert, padding", "BertForMaskedLM", sizes, "right"),
        ("ViT", "ViTForImageClassification", dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, image_size=128,
                                                 num_labels=1000, patch_size=8), "plain"),
        ("Llama, static cache", "LlamaForCausalLM", wide, "static"),
        ("Mistral, sliding cache", "MistralForCausalLM", mistral, "dynamic"),
        ("GPT2, training with dropout", "GPT2LMHeadModel", dict(gpt2, resid_pdrop=0.0, embd_pdrop=0.0), "dropout"),
        ("T5", "T5ForConditionalGeneration", dict(vocab_size=1000, d_model=512, d_kv=64, d_ff=1024, num_layers=2, num_heads=8, decoder_start_token_id=0,
                                                  pad_token_id=0, eos_token_id=2), "plain"),
    )  # fmt: skip


class Seen:
    """Calls since it was made: served, made, and why some were left."""

    def __init__(self):
        self._seen = sdpa._of_models = sdpa.Replacement()

    def so_far(self):
        return self._seen.served, self._seen.served + sum(self._seen.left.values()), set(self._seen.left)


def inputs_of(name, asked, length):
    g = torch.Generator().manual_seed(3)
    if name == "ViT":
        return {"pixel_values": torch.randn(2, 3, 128, 128, generator=g, dtype=torch.float64).to(DEVICE)}, None
    tokens, real = torch.randint(3, 1000, (2, length), generator=g), torch.ones(2, length, dtype=torch.bool)
    inputs = {"input_ids": tokens}
    if asked in ("left", "right"):
        real[1, slice(0, length // 3) if asked == "left" else slice(length // 2 + 5, None)] = False
        inputs["attention_mask"] = real.long()
    if asked == "packed":
        cuts = (length // 3, length // 2, length - length // 3 - length // 2)
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in cuts])[None].expand(2, -1)
    if name == "T5":
        inputs["decoder_input_ids"], real = tokens[:, : length // 2], None
    return {k: v.to(DEVICE) for k, v in inputs.items()}, real if real is None else real.to(DEVICE)


def errors(model, config, inputs, real, dropped):
    """{dtype: (logits, gradients)} as multiples of eager's error."""
    net = made(model, config, "eager", torch.float64, DEVICE)
    state = net.state_dict()
    with InDouble():
        exact = step(net, inputs, real, dropped)
    ratios = {}
    for dtype in (torch.float32, torch.bfloat16):
        eager = step(made(model, config, "eager", dtype, DEVICE, state), inputs, real, dropped)
        ours = step(made(model, config, "headroom", dtype, DEVICE, state), inputs, real, dropped)
        for who, (_, gradients) in (("eager", eager), ("headroom", ours)):
            wrong = [n for n, g in gradients.items() if not g.isfinite().all()]
            if wrong:
                print(f"    {who}, {str(dtype)[6:]}: gradients that are not finite: {', '.join(wrong)}")
        ratios[dtype] = tuple(
            apart(which(ours), which(exact)) / apart(which(eager), which(exact)) for which in (lambda r: r[0], lambda r: list(r[1].values()))
        )
    return ratios


def generated(model, config, cache, length):
    """Whether the tokens are eager's."""
    g = torch.Generator().manual_seed(3)
    tokens, real = torch.randint(3, 1000, (2, length), generator=g), torch.ones(2, length, dtype=torch.long)
    real[1, : length // 3] = 0
    eager = made(model, config, "eager", torch.float32, DEVICE)
    ours = made(model, config, "headroom", torch.float32, DEVICE, eager.state_dict())
    asked = dict(input_ids=tokens.to(DEVICE), attention_mask=real.to(DEVICE), max_new_tokens=12, do_sample=False, eos_token_id=None, disable_compile=True,
                 **({"cache_implementation": "static"} if cache == "static" else {}))  # fmt: skip
    return torch.equal(eager.generate(**asked), ours.generate(**asked))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=1024)
    length = parser.parse_args().length
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {where}, length {length}: multiples of eager's error against FP64")
    print(f"{'kind':29}{'fp32 logits':>12}{'gradients':>11}{'bf16 logits':>13}{'gradients':>11}{'served':>8}{'of':>5}{'s':>6}")
    all_served = far = 0
    for name, model, settings, asked in kinds(length):
        torch.manual_seed(1)
        begun = time.time()
        config = getattr(transformers, name.partition(",")[0] + "Config")(**settings)
        config.use_cache = asked != "packed"  # transformers looks for documents only where there is no cache
        model, seen = getattr(transformers, model), Seen()
        if asked in ("static", "dynamic"):
            same = generated(model, config, asked, length)
            numbers, far = "the tokens are eager's" if same else "OTHER TOKENS", far + (not same)
        else:
            ratios = errors(model, config, *inputs_of(name, asked, length), asked == "dropout")
            (a, b), (c, d) = ratios[torch.float32], ratios[torch.bfloat16]
            numbers, far = f"{a:12.2f}{b:11.2f}{c:13.2f}{d:11.2f}", far + (not all(e <= LIMIT for e in (a, b, c, d)))
        served, calls, why = seen.so_far()
        all_served += served == calls > 0
        print(f"{name:29}{numbers:47}{served:8}{calls:5}{time.time() - begun:6.1f}", flush=True)
        for reason in sorted(why):
            print(f"    left: {reason}")
    print(f"every call served in {all_served} of {len(kinds(length))} kinds; {far} further from FP64 than {LIMIT} times eager, or with other tokens")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
