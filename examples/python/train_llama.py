"""An ordinary training program: a Llama of 1.1 billion parameters from transformers, with random weights. It knows nothing of Headroom.

    headroom forecast --device rtx4090 -- python3 train_llama.py --batch 4
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--len", type=int, default=2048)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--checkpoint", action="store_true", help="recompute activations in backward")
    asked = options.parse_args()

    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                         vocab_size=32000)
    model = LlamaForCausalLM(config).cuda()
    if asked.checkpoint:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(asked.steps):
        tokens = torch.randint(config.vocab_size, (asked.batch, asked.len), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
