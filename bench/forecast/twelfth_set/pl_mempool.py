"""A MemPool of its own for a cache of keys, statistics of the allocator, rounding and garbage collection set, a limit that is hit and caught, then training."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:256,garbage_collection_threshold:0.7"
import torch
import torch.nn as nn

torch.cuda.set_per_process_memory_fraction(0.04)
torch.manual_seed(0)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    cache = [torch.zeros(2, 16, 2048, 128, device="cuda", dtype=torch.bfloat16) for _ in range(24)]
print(len(pool.snapshot()), torch.cuda.memory_stats()["allocated_bytes.all.current"])
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True, activation="gelu"), 6, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)
batch = 64
for step in range(12):
    try:
        x = torch.randn(batch, 256 + 64 * (step % 3), 1024, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    except torch.cuda.OutOfMemoryError:
        batch //= 2
        loss = None
    x = loss = None
    optimizer.zero_grad()
    torch.cuda.reset_accumulated_memory_stats()
    if step == 6:
        del cache[::2]
        torch.cuda.empty_cache()
print(batch, torch.cuda.memory_stats()["num_ooms"], torch.cuda.mem_get_info()[1] > 0)
