#!/usr/bin/env python3
"""Small random Llama, Qwen2 and Qwen3 models as transformers saves them, and the loss that transformers finds on the held-out tenth
of a token file: the peer of `headroom train --init DIR --tokens DIR/../tokens.bin --steps 0 --validate 0 --len 32 --batch 2`.

    python3 bench/peers/pretrained_loss.py FOLDER
"""
import pathlib
import sys

import numpy as np
import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

VOCAB, LEN, BATCH = 300, 32, 2
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
tokens = np.random.default_rng(0).integers(0, VOCAB, 5000).astype(np.uint16)
tokens.tofile(folder / "tokens.bin")
held = torch.from_numpy(tokens[4500:].astype(np.int64))
sizes = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
for name, config, model, more in (("llama", LlamaConfig, LlamaForCausalLM, {}),
                                  ("qwen2", Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
                                  ("qwen3", Qwen3Config, Qwen3ForCausalLM, dict(head_dim=32))):
    m = model(config(**sizes, **more)).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.15)  # biases and norms that matter
        m.save_pretrained(folder / name, max_shard_size="100KB" if name == "qwen2" else "5GB")
        count = (len(held) - 1) // LEN // BATCH * BATCH
        x, y = (held[s:s + count * LEN].view(count, LEN) for s in (0, 1))
        loss = torch.nn.functional.cross_entropy(m(x).logits.float().flatten(0, 1), y.flatten()).item()
    print(f"{name} {loss:.6f}")
