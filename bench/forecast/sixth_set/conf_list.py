"""roundup_power2_divisions given as a list, and max_split_size_mb, on texts whose lengths change at every step; the cache emptied once, peaks read."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:[32:256,64:128,256:64,>:16],max_split_size_mb:200"
import torch
import torch.nn as nn
torch.manual_seed(0)
lengths = [201, 377, 90, 513, 402, 288, 650, 131, 609, 333]
words = nn.Embedding(25013, 400).cuda()
layers = nn.ModuleList(nn.TransformerEncoderLayer(400, 8, 1600, 0.1, "gelu", batch_first=True) for _ in range(5)).cuda()
head = nn.Linear(400, 25013).cuda()
everything = [*words.parameters(), *layers.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(everything, 3e-4, amsgrad=True)
for step, n in enumerate(lengths):
    ids = torch.randint(0, 25013, (7, n + 1), device="cuda")
    with torch.autocast("cuda", torch.float16):
        x = words(ids[:, :-1])
        for layer in layers:
            x = layer(x, torch.nn.Transformer.generate_square_subsequent_mask(n, device="cuda"), is_causal=True)
        loss = nn.functional.cross_entropy(head(x).transpose(1, 2), ids[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 4:
        torch.cuda.empty_cache()
    print(step, loss.item(), torch.cuda.memory_reserved() // 2**20)
