"""Training steps of unchanged transformers models, their attention by ours and by each of torch's ways, in turns in one process.

    python bench/peers/torch_model_steps.py                        # a GPU: Llama 1.1B, Gemma 2 2B at 4096, Llama with packed documents
    python bench/peers/torch_model_steps.py --model gemma2 --turns 5
    python bench/peers/torch_model_steps.py --device cpu --tiny    # that it works, in seconds

Weights in bf16, fused AdamW, random weights and tokens, one model for every way: `set_attn_implementation` is all that changes. Of the turns the
median counts, all of them are printed. The loss of the first step says that the ways compute the same. Prints one JSON object.
PYTHONPATH=python and HEADROOM_LIBRARY=build/release/libheadroom.so, or an installed wheel.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import gpu_headroom as hr
import gpu_headroom.torch  # noqa: F401  registers "headroom" with transformers

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
LLAMA = dict(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4)
GEMMA2 = dict(vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4,
              head_dim=256, sliding_window=4096)  # fmt: skip
TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)

# name: class, sizes, batch, length, documents, ways; transformers refuses sdpa for Gemma 2, which caps its scores
MODELS = {
    "llama": ("Llama", LLAMA, 4, 2048, 1, ("headroom", "sdpa", "sdpa flash", "sdpa cudnn", "sdpa efficient")),
    "gemma2": ("Gemma2", GEMMA2, 1, 4096, 1, ("headroom", "eager", "flex_attention")),
    "gemma2-8k": ("Gemma2", GEMMA2, 1, 8192, 1, ("headroom", "eager", "flex_attention")),
    "packed": ("Llama", LLAMA, 1, 8192, 12, ("headroom", "sdpa", "flex_attention")),
}


def documents_of(length, count):
    """Lengths of `count` documents that fill a row, uneven as documents are."""
    cuts = torch.randperm(length - 1, generator=torch.Generator().manual_seed(7))[: count - 1] + 1
    ends = torch.cat([torch.tensor([0]), cuts.sort().values, torch.tensor([length])])
    return ends.diff().tolist()


def step_of(name, sizes, batch, length, documents, device):
    """A callable that trains one step with the way that is given, and the model's parameters."""
    config = getattr(transformers, f"{name}Config")(**sizes, max_position_embeddings=length, use_cache=False)
    torch.manual_seed(0)
    with torch.device(device):
        net = getattr(transformers, f"{name}ForCausalLM")(config).to(torch.bfloat16).train()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)
    tokens = torch.randint(0, sizes["vocab_size"], (batch, length), device=device)
    asked = {}
    if documents > 1:
        positions = torch.cat([torch.arange(n) for n in documents_of(length, documents)])
        asked = {"position_ids": positions.repeat(batch, 1).to(device)}

    def step(way):
        implementation, _, backend = way.partition(" ")
        net.set_attn_implementation(implementation)
        with sdpa_kernel(BACKENDS[backend]) if backend else contextlib.nullcontext():
            optimiser.zero_grad()
            loss = net(tokens, labels=tokens, **asked).loss
            loss.backward()
            optimiser.step()
        return loss

    return step, sum(p.numel() for p in net.parameters())


def ms_of(call, times, device):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(times):
        call()
    wait()
    return (time.perf_counter() - start) / times * 1e3


def measured(model, turns, times, device, tiny):
    name, sizes, batch, length, documents, ways = MODELS[model]
    if tiny:
        sizes, length = dict(sizes, **TINY), 96
        if "sliding_window" in sizes:
            sizes["sliding_window"] = 32
    step, params = step_of(name, sizes, batch, length, documents, device)
    row = {"model": model, "params": params, "batch": batch, "len": length, "documents": documents, "ways": {}}
    torch.compiler.reset()
    for way in ways:
        try:
            row["ways"][way] = {"loss": float(step(way)), "turns_ms": []}
            for _ in range(2):
                step(way)
        except Exception as e:  # a way that does not serve this model is a row too
            row["ways"][way] = {"refused": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"}
        print(f"{model}: {way} {row['ways'][way]}", file=sys.stderr)
    taken = {way: r for way, r in row["ways"].items() if "turns_ms" in r}
    for _ in range(turns):
        for way, r in taken.items():
            step(way)  # what the other way left behind is not timed
            r["turns_ms"].append(round(ms_of(lambda: step(way), times, device), 3))
    for r in taken.values():
        r["ms"] = round(statistics.median(r["turns_ms"]), 3)
    rivals = {way: r["ms"] for way, r in taken.items() if way != "headroom"}
    if rivals and "headroom" in taken:
        row["best_of_torch"] = min(rivals, key=rivals.get)
        row["torch_over_headroom"] = round(min(rivals.values()) / taken["headroom"]["ms"], 3)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=sorted(MODELS), help="one or several; all of them where none is named")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="steps of a turn")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="two narrow layers in place of the model's")
    asked = parser.parse_args()
    rows = []
    for model in asked.model or MODELS:
        rows.append(measured(model, asked.turns, asked.steps, asked.device, asked.tiny))
        if asked.device == "cuda":
            torch.cuda.empty_cache()
    machine = torch.cuda.get_device_name() if asked.device == "cuda" else "cpu"
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "headroom": hr.version(), "machine": machine,
                      "steps": rows}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
