"""Transformer-XL: relative positions by a shift, memories of each layer, an adaptive softmax over 30000 words."""
import torch
import torch.nn as nn
torch.manual_seed(0)
d, heads, mem_len = 410, 10, 150
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.r, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.u, self.v = nn.Parameter(torch.randn(heads, d // heads) * 0.02), nn.Parameter(torch.randn(heads, d // heads) * 0.02)
        self.n1, self.n2, self.drop = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(0.1)
        self.ff = nn.Sequential(nn.Linear(d, 2100), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2100, d), nn.Dropout(0.1))
    def forward(self, x, mem, places):
        T, B, _ = x.shape
        c = torch.cat([mem, x]) if mem is not None else x
        S = c.shape[0]
        q = self.q(x).view(T, B, heads, -1)
        k, v = self.kv(c).view(S, B, 2, heads, -1).unbind(2)
        r = self.r(places).view(S, heads, -1)
        ac = torch.einsum("ibnd,jbnd->ijbn", q + self.u, k)
        bd = torch.einsum("ibnd,jnd->ijbn", q + self.v, r)
        bd = torch.cat([bd.new_zeros(T, 1, B, heads), bd], 1).view(S + 1, T, B, heads)[1:].view_as(ac)
        mask = torch.ones(T, S, dtype=torch.bool, device=x.device).triu(1 + S - T)
        a = self.drop(((ac + bd) * (d // heads) ** -0.5).masked_fill(mask[:, :, None, None], -torch.inf).softmax(1))
        x = self.n1(x + self.drop(self.o(torch.einsum("ijbn,jbnd->ibnd", a, v).reshape(T, B, d))))
        return self.n2(x + self.ff(x))
class Net(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.embed, self.layers = nn.Embedding(30001, d), nn.ModuleList(Layer() for _ in range(n))
        self.out = nn.AdaptiveLogSoftmaxWithLoss(d, 30001, [2000, 10000], div_value=4.0)
    def forward(self, ids, targets, mems):
        x, new = self.embed(ids), []
        S = ids.shape[0] + (mems[0].shape[0] if mems else 0)
        f = torch.arange(S - 1, -1, -1.0, device=ids.device)[:, None] / 10000 ** (torch.arange(0, d, 2.0, device=ids.device) / d)
        places = torch.cat([f.sin(), f.cos()], -1)
        for i, layer in enumerate(self.layers):
            m = mems[i] if mems else None
            new.append((torch.cat([m, x]) if mems else x)[-mem_len:].detach())
            x = layer(x, m, places)
        return self.out(x.flatten(0, 1), targets.flatten()).loss, new
model, mems = Net().cuda(), None
optimizer = torch.optim.Adam(model.parameters(), 2.5e-4)
for step in range(6):
    ids = torch.randint(0, 30001, (101, 12), device="cuda")
    loss, mems = model(ids[:-1], ids[1:], mems)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
print(loss.item())
