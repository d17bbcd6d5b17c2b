"""What is saved for backward is kept in 8 bits by hooks on saved tensors."""
import torch
import torch.nn as nn
torch.manual_seed(0)
def pack(t):
    if t.numel() < 100000 or not t.is_floating_point():
        return t
    scale = t.detach().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    return (t.detach() / scale).round().to(torch.int8), scale, t.dtype
def unpack(kept):
    return kept if isinstance(kept, torch.Tensor) else (kept[0].to(kept[2]) * kept[1]).to(kept[2])
model = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(1024, 4096), nn.SiLU(), nn.Linear(4096, 1024), nn.LayerNorm(1024)))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    x = torch.randn(4096, 1024, device="cuda")
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
