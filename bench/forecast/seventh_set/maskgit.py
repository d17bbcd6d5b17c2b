"""MaskGIT: tokens of pictures hidden by a cosine schedule, an encoder of PyTorch's layers learns them with classes dropped, bf16; then all tokens in
eight rounds by confidence."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
V, D, N = 2048, 576, 256
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.label, self.pos = nn.Embedding(V + 1, D), nn.Embedding(101, D), nn.Parameter(torch.zeros(1, N + 1, D))
        layer = nn.TransformerEncoderLayer(D, 9, 4 * D, 0.1, F.gelu, batch_first=True, norm_first=True)
        self.body, self.norm, self.bias = nn.TransformerEncoder(layer, 7, enable_nested_tensor=False), nn.LayerNorm(D), nn.Parameter(torch.zeros(N, V))
    def forward(self, ids, y):
        x = torch.cat([self.label(y)[:, None], self.words(ids)], 1) + self.pos
        return self.norm(self.body(x)[:, 1:]) @ self.words.weight[:V].t().to(torch.bfloat16) + self.bias
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, betas=(0.9, 0.96), weight_decay=4.5e-2, fused=True)
for step in range(5):
    ids, y = torch.randint(0, V, (24, N), device="cuda"), torch.randint(0, 100, (24,), device="cuda")
    y = y.masked_fill(torch.rand(24, device="cuda") < 0.1, 100)
    rate = torch.cos(torch.rand(24, 1, device="cuda") * math.pi / 2)
    hidden = torch.rand(24, N, device="cuda").argsort(1).argsort(1) < (rate * N).ceil()
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(ids.masked_fill(hidden, V), y)
    loss = F.cross_entropy(logits.float().transpose(1, 2), ids.masked_fill(~hidden, -100), label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
model.eval()
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    ids, y = torch.full((8, N), V, device="cuda"), torch.arange(8, device="cuda")
    for turn in range(8):
        c, n = model(torch.cat([ids, ids]), torch.cat([y, torch.full_like(y, 100)])).float().chunk(2)
        p = (n + 2 * (c - n)).softmax(-1)
        drawn = torch.multinomial(p.view(-1, V), 1).view(8, N)
        sure = p.gather(2, drawn[..., None])[..., 0].log() + 4 * (1 - turn / 8) * -torch.log(-torch.log(torch.rand(8, N, device="cuda")))
        sure = sure.masked_fill(ids != V, torch.inf)
        k = int(N * math.cos((turn + 1) / 8 * math.pi / 2))
        new = torch.where(ids == V, drawn, ids)
        if k:
            new.scatter_(1, sure.topk(k, 1, largest=False).indices, V)
        ids = new
    print(loss.item(), (ids == V).sum().item())
