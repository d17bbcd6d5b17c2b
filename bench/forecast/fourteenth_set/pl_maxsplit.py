"""Texts of many lengths with max_split_size_mb and a threshold of garbage collection set: a GPT-J whose logits are the largest blocks, plain Adam, scored on longer ones."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64,garbage_collection_threshold:0.6"
import torch
from transformers import GPTJConfig, GPTJForCausalLM

torch.manual_seed(0)
config = GPTJConfig(vocab_size=32000, n_positions=1024, n_embd=768, n_layer=8, n_head=12, rotary_dim=32, n_inner=3072)
model = GPTJForCausalLM(config).cuda().train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
for step, n in enumerate((480, 256, 620, 300, 512, 140, 700)):
    ids = torch.randint(0, 32000, (4, n), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(n, torch.cuda.memory_reserved() // 2**20, torch.cuda.memory_stats()["num_alloc_retries"])
model.eval()
with torch.no_grad():
    for n in (900, 333, 1000):
        print(model(torch.randint(0, 32000, (4, n), device="cuda"), use_cache=False).logits.float().logsumexp(-1).mean().item())
