"""Plain: a GPT of hand-written attention with rotary positions, ten steps captured in one CUDA graph after warm-up, weights averaged (SWA), inputs copied in by a stream."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
V, T, D, H, L, B = 16384, 512, 768, 12, 8, 8


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)

    def forward(self, x, cos, sin, mask):
        q, k, v = (t.view(x.shape[0], -1, H, D // H).transpose(1, 2) for t in self.qkv(self.one(x)).chunk(3, -1))
        scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2) / math.sqrt(D // H)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1, dtype=torch.float32).to(v.dtype)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.two(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Embedding(V, D), nn.ModuleList(Block() for _ in range(L)), nn.RMSNorm(D)
        angles = torch.outer(torch.arange(T), 10000 ** (-torch.arange(0, D // H, 2) / (D // H)))
        self.register_buffer("cos", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16(), persistent=False)
        self.register_buffer("mask", torch.ones(T, T, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x, y):
        h = self.embed(x)
        for b in self.blocks:
            h = b(h, self.cos, self.sin, self.mask)
        return F.cross_entropy((self.norm(h) @ self.embed.weight.T).float().flatten(0, 1), y.flatten())


model = GPT().cuda().bfloat16()
averaged = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True)
x, y = torch.zeros(B, T, dtype=torch.long, device="cuda"), torch.zeros(B, T, dtype=torch.long, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(x, y).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(x, y)
    loss.backward()
    optimizer.step()
copies = torch.cuda.Stream()
for step in range(10):
    batch = torch.randint(0, V, (2, B, T)).pin_memory()
    with torch.cuda.stream(copies):
        x.copy_(batch[0], non_blocking=True)
        y.copy_(batch[1], non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    graph.replay()
    torch.cuda.synchronize()
    if step >= 5:
        averaged.update_parameters(model)
with torch.no_grad():
    print(averaged(x, y).item(), loss.item())
