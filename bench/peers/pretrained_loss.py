#!/usr/bin/env python3
"""Small random models of every dense family as transformers saves them, and the loss that transformers finds on the held-out tenth of a
token file: the peer of `headroom train --init DIR --tokens DIR/../tokens.bin --steps 0 --validate 0 --len 32 --batch 2`.

    python3 bench/peers/pretrained_loss.py FOLDER [HEADROOM [OPTION …]]

With the program's path it also runs that, trains three steps and writes them back (--save-hf), loads the result with transformers, and
ends with code 1 where a loss differs by more than 1e-5. Further options go to the program: --device cuda.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import torch
import transformers as t

VOCAB, LEN, BATCH, MOST = 300, 32, 2, 1e-5
folder = pathlib.Path(sys.argv[1])
program = sys.argv[2:]
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
t.logging.set_verbosity_error()
t.logging.disable_progress_bar()
torch.set_num_threads(1)
tokens = np.random.default_rng(0).integers(0, VOCAB, 5000).astype(np.uint16)
tokens.tofile(folder / "tokens.bin")
held = torch.from_numpy(tokens[4500:].astype(np.int64))

sizes = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)
quarter = [1.0 + i / 4 for i in range(16)]


def rope(**more):
    return dict(rope_parameters=dict(rope_theta=10000.0, **more))


FAMILIES = {
    "llama": (t.LlamaConfig, {}),
    "llama-linear": (t.LlamaConfig, rope(rope_type="linear", factor=4.0)),
    "llama-dynamic": (t.LlamaConfig, dict(max_position_embeddings=16) | rope(rope_type="dynamic", factor=4.0)),
    "llama3": (t.LlamaConfig, rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=32)),
    "llama-yarn": (t.LlamaConfig, rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama-biases-gelu": (t.LlamaConfig, dict(attention_bias=True, mlp_bias=True, hidden_act="gelu")),
    "mistral": (t.MistralConfig, dict(sliding_window=8)),
    "qwen2": (t.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen2-windows": (t.Qwen2Config, dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)),
    "qwen3": (t.Qwen3Config, dict(head_dim=32)),
    "qwen3-biases": (t.Qwen3Config, dict(head_dim=32, attention_bias=True)),
    "phi3": (t.Phi3Config, dict(sliding_window=9)),
    "phi3-longrope": (t.Phi3Config, dict(head_dim=16, original_max_position_embeddings=16)
                      | rope(rope_type="longrope", partial_rotary_factor=0.75, short_factor=quarter[:6], long_factor=quarter[6:12])),
    "gemma": (t.GemmaConfig, dict(head_dim=32, tie_word_embeddings=True)),
    "gemma2": (t.Gemma2Config, dict(head_dim=32, sliding_window=8, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                                    final_logit_softcapping=3.0, tie_word_embeddings=True)),
    "gemma3": (t.Gemma3TextConfig, dict(num_hidden_layers=6, head_dim=32, sliding_window=8, query_pre_attn_scalar=24,
                                        tie_word_embeddings=True,
                                        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1000.0),
                                                             full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=4.0)))),
    "olmo2": (t.Olmo2Config, {}),
    "gpt2": (t.GPT2Config, dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, n_inner=160)),
    "gpt2-plain": (t.GPT2Config, dict(n_embd=64, n_layer=3, n_head=4, n_positions=40, activation_function="relu",
                                      scale_attn_by_inverse_layer_idx=True)),
}
NOT_GPT2 = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")


def loss_of(model):
    model = model.float().eval()
    with torch.no_grad():
        count = (len(held) - 1) // LEN // BATCH * BATCH
        x, y = (held[s:s + count * LEN].view(count, LEN) for s in (0, 1))
        return torch.nn.functional.cross_entropy(model(x).logits.float().flatten(0, 1), y.flatten()).item()


def headroom(*options):
    answer = subprocess.run([program[0], "train", "--tokens", str(folder / "tokens.bin"), "--len", str(LEN), "--batch", str(BATCH),
                             "--validate", "0", "--format", "json", "--db", str(folder / "results.db"), *map(str, options), *program[1:]],
                            capture_output=True, text=True)
    return json.loads(answer.stdout)["validation_loss"] if answer.returncode == 0 else answer.stderr.strip()


def line(name, *numbers):
    print(f"{name:20}" + "".join(f"{n:14.7f}" if isinstance(n, float) else f"  {n}" for n in numbers), flush=True)


line("model", "transformers", " headroom", " difference", "after three steps:", "headroom", "transformers", "difference")
worst = 0.0
for name, (config, more) in FAMILIES.items():
    base = {k: v for k, v in sizes.items() if config is not t.GPT2Config or k not in NOT_GPT2}
    made = config(**(base | more), attn_implementation="eager")
    model = t.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)  # biases and norms that matter
    model.save_pretrained(folder / name, max_shard_size="100KB" if name == "qwen2" else "5GB")
    expected = loss_of(model)
    if not program:
        line(name, expected)
        continue
    got = headroom("--init", folder / name, "--steps", 0)
    saved = folder / (name + "-trained")
    trained = headroom("--init", folder / name, "--steps", 3, "--save-hf", saved)
    if isinstance(got, str) or isinstance(trained, str):
        line(name, expected, got, trained)
        worst = float("inf")
        continue
    again = loss_of(t.AutoModelForCausalLM.from_pretrained(saved, attn_implementation="eager", dtype=torch.float32))
    line(name, expected, got, got - expected, trained, again, trained - again)
    worst = max(worst, abs(got - expected), abs(trained - again))
if program:
    print(f"largest difference {worst:.2e}; at most {MOST:.0e} is allowed")
    sys.exit(0 if worst <= MOST else 1)
