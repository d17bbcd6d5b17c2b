#!/usr/bin/env python3
"""Small random models of every dense family as transformers saves them, and the loss that transformers finds on the held-out tenth of a
token file: the peer of `headroom train --init DIR --tokens DIR/../tokens.bin --steps 0 --validate 0 --len 32 --batch 2`.

    python3 bench/peers/pretrained_loss.py FOLDER [HEADROOM [OPTION …]]

With the program's path it also runs that, trains three steps, writes them back (--save-hf), and finds the loss of the result with
transformers. It ends with code 1 where a loss differs by more than 1e-5. Further options go to the program: --device cuda.

Where there is no transformers, FOLDER has to come from a machine that has it: the models and their losses are read from there, and the
program's engine on the CPU takes the place of transformers in the last column. --most X allows another difference, for other precisions.
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import zlib

try:
    import numpy as np
    import torch
    import transformers as t
except ImportError:
    t = None

VOCAB, LEN, BATCH = 300, 32, 2
most = 1e-5
if "--most" in sys.argv:
    at = sys.argv.index("--most")
    most = float(sys.argv[at + 1])
    del sys.argv[at:at + 2]
folder = pathlib.Path(sys.argv[1])
program = sys.argv[2:]

sizes = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)
quarter = [1.0 + i / 4 for i in range(16)]


def rope(**more):
    return dict(rope_parameters=dict(rope_theta=10000.0, **more))


FAMILIES = {
    "llama": ("LlamaConfig", {}),
    "llama-linear": ("LlamaConfig", rope(rope_type="linear", factor=4.0)),
    "llama-dynamic": ("LlamaConfig", dict(max_position_embeddings=16) | rope(rope_type="dynamic", factor=4.0)),
    "llama3": ("LlamaConfig", rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=32)),
    "llama-yarn": ("LlamaConfig", rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama-biases-gelu": ("LlamaConfig", dict(attention_bias=True, mlp_bias=True, hidden_act="gelu")),
    "mistral": ("MistralConfig", dict(sliding_window=8)),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True)),
    "qwen2-windows": ("Qwen2Config", dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)),
    "qwen3": ("Qwen3Config", dict(head_dim=32)),
    "qwen3-biases": ("Qwen3Config", dict(head_dim=32, attention_bias=True)),
    "phi3": ("Phi3Config", dict(sliding_window=9)),
    "phi3-longrope": ("Phi3Config", dict(head_dim=16, original_max_position_embeddings=16)
                      | rope(rope_type="longrope", partial_rotary_factor=0.75, short_factor=quarter[:6], long_factor=quarter[6:12])),
    "gemma": ("GemmaConfig", dict(head_dim=32, tie_word_embeddings=True)),
    "gemma2": ("Gemma2Config", dict(head_dim=32, sliding_window=8, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                                    final_logit_softcapping=3.0, tie_word_embeddings=True)),
    "gemma3": ("Gemma3TextConfig", dict(num_hidden_layers=6, head_dim=32, sliding_window=8, query_pre_attn_scalar=24,
                                        tie_word_embeddings=True,
                                        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1000.0),
                                                             full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=4.0)))),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": ("Olmo3Config", dict(num_hidden_layers=4, sliding_window=8,
                                  rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1000.0),
                                                       full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=4.0)))),
    "gpt2": ("GPT2Config", dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, n_inner=160)),
    "gpt2-plain": ("GPT2Config", dict(n_embd=64, n_layer=3, n_head=4, n_positions=40, activation_function="relu",
                                      scale_attn_by_inverse_layer_idx=True)),
}
NOT_GPT2 = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")


def held_out():
    return torch.from_numpy(np.fromfile(folder / "tokens.bin", np.uint16)[4500:].astype(np.int64))


def loss_of(model):
    model, held = model.float().eval(), held_out()
    with torch.no_grad():
        count = (len(held) - 1) // LEN // BATCH * BATCH
        x, y = (held[s:s + count * LEN].view(count, LEN) for s in (0, 1))
        return torch.nn.functional.cross_entropy(model(x).logits.float().flatten(0, 1), y.flatten()).item()


def make_all():
    """Models, tokens, and what transformers says of them: expected.json."""
    folder.mkdir(parents=True, exist_ok=True)
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    torch.set_num_threads(1)
    np.random.default_rng(0).integers(0, VOCAB, 5000).astype(np.uint16).tofile(folder / "tokens.bin")
    losses = {}
    for name, (config, more) in FAMILIES.items():
        base = {k: v for k, v in sizes.items() if config != "GPT2Config" or k not in NOT_GPT2}
        made = getattr(t, config)(**(base | more), attn_implementation="eager")
        model = t.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
        with torch.no_grad():
            for of, p in model.named_parameters():  # biases and norms that matter; the same numbers wherever they are drawn
                random = np.random.default_rng([zlib.crc32(name.encode()), zlib.crc32(of.encode())])
                p.copy_(p.mean().round() + 0.15 * torch.from_numpy(random.standard_normal(tuple(p.shape), np.float32)))
        model.save_pretrained(folder / name, max_shard_size="100KB" if name == "qwen2" else "5GB")
        losses[name] = loss_of(model)
    (folder / "expected.json").write_text(json.dumps(losses, indent=1))


def headroom(name, *options, further=tuple(program[1:])):
    answer = subprocess.run([program[0], "train", "--tokens", str(folder / "tokens.bin"), "--len", str(LEN), "--batch", str(BATCH),
                             "--validate", "0", "--format", "json", "--db", str(folder / (name + ".db")), *map(str, options), *further],
                            capture_output=True, text=True)
    return json.loads(answer.stdout)["validation_loss"] if answer.returncode == 0 else answer.stderr.strip()


def measured(name):
    """The program's loss, its loss after three steps, and transformers' (or the program's on the CPU) of the weights that it wrote."""
    saved = folder / (name + "-trained")
    before = headroom(name, "--init", folder / name, "--steps", 0)
    trained = headroom(name, "--init", folder / name, "--steps", 3, "--save-hf", saved)
    again = float("nan")
    if t is None and not isinstance(trained, str):
        again = headroom(name, "--init", saved, "--steps", 0, further=("--device", "cpu"))
    return before, trained, again


def line(name, *numbers):
    print(f"{name:20}" + "".join(f"{n:14.7f}" if isinstance(n, float) else f"  {n}" for n in numbers), flush=True)


if t:
    make_all()
expected = json.loads((folder / "expected.json").read_text())
if not program:
    for name, loss in expected.items():
        line(name, loss)
    sys.exit(0)
line("model", "transformers", " headroom", " difference", "after three steps:", "headroom", "transformers" if t else "on a CPU", "difference")
worst = 0.0
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for name, (before, trained, again) in zip(expected, pool.map(measured, expected)):
        said = [x for x in (before, trained, again) if isinstance(x, str)]
        if said:
            line(name, expected[name], *said)
            worst = float("inf")
            continue
        if t:
            again = loss_of(t.AutoModelForCausalLM.from_pretrained(folder / (name + "-trained"), attn_implementation="eager",
                                                                   dtype=torch.float32))
        line(name, expected[name], before, before - expected[name], trained, again, trained - again)
        worst = max(worst, abs(before - expected[name]), abs(trained - again))
print(f"largest difference {worst:.2e}; at most {most:.0e} is allowed")
sys.exit(0 if worst <= most else 1)
