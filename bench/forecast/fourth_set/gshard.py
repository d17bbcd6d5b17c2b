"""Experts with a capacity, tokens sent and fetched by products with one-hot masks, as GShard does."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
class Experts(nn.Module):
    def __init__(self, size=512, experts=8):
        super().__init__()
        self.gate = nn.Linear(size, experts, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(experts, size, 4 * size) * 0.02), nn.Parameter(torch.randn(experts, 4 * size, size) * 0.02)
    def forward(self, x):
        flat = x.flatten(0, 1)
        chance = self.gate(flat).float().softmax(-1)
        n, e = chance.shape
        room = 2 * 2 * n // e
        weight, best = chance.topk(2, -1)
        send = torch.zeros(n, e, room, device=x.device)
        taken = torch.zeros(e, device=x.device)
        for i in range(2):
            hot = F.one_hot(best[:, i], e).float()
            place = (hot.cumsum(0) - 1 + taken) * hot
            taken = taken + hot.sum(0)
            inside = (place < room).float() * hot
            send = send + weight[:, i, None, None] * inside[..., None] * F.one_hot(place.sum(-1).long().clamp(max=room - 1), room)[:, None].float()
        mask = (send > 0).to(x.dtype)
        inputs = torch.einsum("nec,nd->ecd", mask, flat)
        outs = torch.bmm(F.gelu(torch.bmm(inputs, self.up.to(x.dtype))), self.down.to(x.dtype))
        even = (F.one_hot(best[:, 0], e).float().mean(0) * chance.mean(0)).sum() * e
        return torch.einsum("nec,ecd->nd", send.to(x.dtype), outs).view_as(x), even
blocks = nn.ModuleList(nn.ModuleDict({"norm": nn.LayerNorm(512), "experts": Experts()}) for _ in range(4)).cuda()
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
for step in range(4):
    x, more = torch.randn(4, 512, 512, device="cuda", dtype=torch.bfloat16), 0
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for block in blocks:
            y, even = block["experts"](block["norm"](x).to(torch.bfloat16))
            x, more = x + y, more + even
    (x.float().pow(2).mean() + 0.01 * more).backward()
    optimizer.step()
    optimizer.zero_grad()
