"""Batches of growing lengths under a limit for this process: an OutOfMemoryError in forward or backward halves the piece, gradients are kept; expandable segments."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,garbage_collection_threshold:0.8"
import torch
import torch.nn as nn
torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(0.011)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1500, 0.0, batch_first=True, norm_first=True), 6, enable_nested_tensor=False).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
highest, split = 0, 0
def run(x, share):
    global split
    try:
        loss = model(x).square().mean() * share
        loss.backward()
        return loss.item()
    except torch.OutOfMemoryError:
        failed = True
    if failed:
        split += 1
        loss = None
        torch.cuda.empty_cache()
        half = len(x) // 2
        return run(x[:half], share * half / len(x)) + run(x[half:], share * (1 - half / len(x)))
for step in range(6):
    x = torch.randn(22, 150 + 130 * step, 384, device="cuda")
    optimizer.zero_grad(set_to_none=False)
    loss = run(x, 1.0)
    optimizer.step()
    stats = torch.cuda.memory_stats()
    highest = max(highest, stats["allocated_bytes.all.peak"])
    print(step, loss, split, stats["num_alloc_retries"], stats["num_ooms"], highest // 2**20)
