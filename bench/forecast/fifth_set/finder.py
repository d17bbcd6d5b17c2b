"""The largest batch that fits, found by doubling and catching errors, with a limit for this process; then training with it."""
import gc
import torch
import torch.nn as nn
torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(0.04)
model = nn.Sequential(nn.Flatten(), *(m for _ in range(6) for m in (nn.Linear(1536, 1536), nn.BatchNorm1d(1536), nn.SiLU()))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
def step(batch):
    loss = model(torch.randn(batch, 3, 16, 32, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss
batch = 1024
while True:
    try:
        step(batch)
        batch *= 2
    except torch.OutOfMemoryError:
        batch //= 2
        break
gc.collect()
optimizer.zero_grad(set_to_none=True)
torch.cuda.empty_cache()
print("batch", batch)
torch.cuda.reset_peak_memory_stats()
for _ in range(3):
    print(step(batch // 3).item())
