"""A sparse autoencoder over a GPT-2's inner states: hooks catch them, a store on the card is shuffled and refilled, top 40 of 9300 features, an auxiliary loss of dead ones, decoder's rows normed."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
D, N, K = 512, 9300, 40
net = GPT2LMHeadModel(GPT2Config(vocab_size=10007, n_positions=256, n_embd=D, n_layer=5, n_head=8)).cuda().eval().requires_grad_(False)
caught = []
net.transformer.h[2].register_forward_hook(lambda m, i, o: caught.append((o[0] if isinstance(o, tuple) else o).detach()))
@torch.no_grad()
def refill(store, used):
    while used < len(store):
        caught.clear()
        net(torch.randint(0, 10007, (24, 250), device="cuda"))
        flat = caught[0].flatten(0, 1)[:len(store) - used]
        store[used:used + len(flat)] = flat
        used += len(flat)
    return store[torch.randperm(len(store), device="cuda")]
store = refill(torch.empty(40000, D, device="cuda"), 0)
W, b = nn.Parameter(F.normalize(torch.randn(N, D, device="cuda"), dim=1)), nn.Parameter(store.mean(0))
E_, e = nn.Parameter(W.data.T.clone()), nn.Parameter(torch.zeros(N, device="cuda"))
optimizer, idle, place = torch.optim.Adam([W, b, E_, e], 2e-4, betas=(0.9, 0.999)), torch.zeros(N, device="cuda"), 0
for step in range(12):
    if place + 4096 > len(store):
        store, place = refill(store, len(store) // 2), 0
    x = store[place:place + 4096]
    place += 4096
    pre = (x - b) @ E_ + e
    value, index = pre.relu().topk(K, -1)
    code = torch.zeros_like(pre).scatter_(1, index, value)
    y = code @ W + b
    idle += 1
    idle[index.flatten()] = 0
    loss = (y - x).square().sum(-1).mean() / x.var(0).sum()
    v2, i2 = pre.masked_fill(idle < 3, -torch.inf).relu().topk(64, -1)
    aux = torch.zeros_like(pre).scatter_(1, i2, v2.nan_to_num(0)) @ W
    loss = loss + ((x - y).detach() - aux).square().mean() / 32
    loss.backward()
    W.grad -= (W.grad * W.data).sum(1, keepdim=True) * W.data
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        W.div_(W.norm(dim=1, keepdim=True))
    print(step, loss.item(), (idle > 3).sum().item())
