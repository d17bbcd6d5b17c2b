"""A decision transformer: returns, states and actions interleaved, padded on the left, GPT-2's body given embeddings; then played in environments on the host with a growing context."""
import random
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2Model
torch.manual_seed(0)
random.seed(0)
class Decide(nn.Module):
    def __init__(self, s=39, a=9, d=392):
        super().__init__()
        self.body = GPT2Model(GPT2Config(vocab_size=1, n_embd=d, n_layer=6, n_head=7, n_positions=600))
        self.time, self.ret, self.state, self.action = nn.Embedding(1001, d), nn.Linear(1, d), nn.Linear(s, d), nn.Linear(a, d)
        self.norm, self.out = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, a), nn.Tanh())
    def forward(self, s, a, r, t, mask):
        e = self.time(t)
        x = torch.stack((self.ret(r) + e, self.state(s) + e, self.action(a) + e), 2).flatten(1, 2)
        h = self.body(inputs_embeds=self.norm(x), attention_mask=mask.repeat_interleave(3, 1)).last_hidden_state
        return self.out(h.unflatten(1, (-1, 3))[:, :, 1])
model = Decide().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=1e-4)
data = [(torch.randn(n, 39), torch.rand(n, 9) * 2 - 1, torch.rand(n, 1)) for n in (random.randrange(60, 400) for _ in range(50))]
T = 111
for _ in range(6):
    batch = []
    for s, a, r in random.choices(data, k=30):
        i = random.randrange(len(s))
        n = min(T, len(s) - i)
        pad = lambda x: torch.cat((torch.zeros(T - n, x.shape[1]), x[i:i + n]))
        batch.append((pad(s), pad(a), pad(r.flip(0).cumsum(0).flip(0)), torch.cat((torch.zeros(T - n), torch.arange(i, i + n))).long(), torch.cat((torch.zeros(T - n), torch.ones(n)))))
    s, a, r, t, mask = (torch.stack(x).cuda() for x in zip(*batch))
    guess = model(s, a, r, t, mask)
    loss = (guess[mask > 0] - a[mask > 0]).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
model.eval()
with torch.no_grad():
    s, a, r = torch.randn(40, 1, 39).cuda(), torch.zeros(40, 0, 9).cuda(), torch.ones(40, 1, 1).cuda()
    for step in range(35):
        a = torch.cat((a, torch.zeros(40, 1, 9, device="cuda")), 1)
        t = torch.arange(s.shape[1], device="cuda").expand(40, -1)
        a[:, -1] = model(s, a, r, t, torch.ones(40, s.shape[1], device="cuda"))[:, -1]
        here = a[:, -1].cpu().numpy()
        s = torch.cat((s, torch.randn(40, 1, 39).cuda() + float(here.mean())), 1)
        r = torch.cat((r, r[:, -1:] - 0.01), 1)
print(s.shape)
