"""Activations larger than 1 MiB go to pinned memory on a stream of their own and come back when backward asks, by saved_tensors_hooks."""
import torch
import torch.nn as nn
torch.manual_seed(0)
out = torch.cuda.Stream()
class Kept:
    def __init__(self, x):
        self.host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(out):
            self.host.copy_(x, non_blocking=True)
        x.record_stream(out)
        self.device = x.device
    def back(self):
        torch.cuda.current_stream().wait_stream(out)
        return self.host.to(self.device, non_blocking=True)
def pack(x):
    return Kept(x) if x.is_cuda and x.numel() * x.element_size() > 2 ** 20 and not isinstance(x, nn.Parameter) else x
def unpack(k):
    return k.back() if isinstance(k, Kept) else k
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
model = nn.Sequential(*(Block(768) for _ in range(7))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    x = torch.randn(5000, 768, device="cuda")
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack), torch.autocast("cuda", torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
print(loss.item())
