"""A RetNet: retention in chunks with a decay for each head, group norm and gates, xPos, bf16 autocast, AdamW, z-loss; then a step at a time with its states."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, H, L, WORDS, CHUNK = 768, 6, 8, 12000, 128


def turned(x, sin, cos):
    a, b = x[..., ::2], x[..., 1::2]
    return x * cos + torch.stack((-b, a), -1).flatten(-2) * sin


class Retention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(a, b, bias=False) for a, b in ((D, D), (D, D), (D, 2 * D), (D, 2 * D), (2 * D, D)))
        self.register_buffer("decay", torch.log(1 - 2 ** (-5 - torch.arange(H, dtype=torch.float))))
        self.register_buffer("angle", (1.0 / 10000 ** torch.linspace(0, 1, D // H // 2)).repeat_interleave(2))

    def parts(self, x, at):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, H, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        angles = at[:, None] * self.angle
        sin, cos = angles.sin(), angles.cos()
        return turned(q, sin, cos), turned(k, sin, cos) * (D // H) ** -0.5, v

    def finish(self, y, x):
        b, h, t, d = y.shape
        y = y.transpose(1, 2)
        y = F.rms_norm(y.float(), (d,)).to(x.dtype).reshape(b, t, -1)
        return self.o(F.silu(self.g(x)) * y)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.parts(x, torch.arange(t, device=x.device))
        n = t // CHUNK
        q, k, v = (y.reshape(b, H, n, CHUNK, -1) for y in (q, k, v))
        place = torch.arange(CHUNK, device=x.device)
        gap = (place[:, None] - place[None]).float()
        mask = torch.where(gap >= 0, torch.exp(gap * self.decay[:, None, None]), 0.0)
        inner = (q @ k.transpose(-1, -2) * mask[:, None].to(q.dtype)) @ v
        to_end, from_start = torch.exp((CHUNK - 1 - place) * self.decay[:, None]), torch.exp((place + 1) * self.decay[:, None])
        added, state, states = (k * to_end[:, None, :, None].to(k.dtype)).transpose(-1, -2) @ v, 0, []
        for i in range(n):
            states.append(state if torch.is_tensor(state) else torch.zeros_like(added[:, :, 0]))
            state = states[-1] * torch.exp(CHUNK * self.decay)[:, None, None] + added[:, :, i]
        return self.finish((inner + (q * from_start[:, None, :, None].to(q.dtype)) @ torch.stack(states, 2).to(q.dtype)).reshape(b, H, t, -1), x)

    def step(self, x, at, state):
        q, k, v = self.parts(x, at)
        state = state * torch.exp(self.decay)[:, None, None] + k.transpose(-1, -2) @ v
        return self.finish((q.float() @ state).to(x.dtype), x), state


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.mix, self.up, self.down = nn.RMSNorm(D), nn.RMSNorm(D), Retention(), nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def rest(self, x):
        return x + self.down(F.gelu(self.up(self.n2(x))))

    def forward(self, x):
        return self.rest(x + self.mix(self.n1(x)))


class RetNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.blocks, self.norm, self.head = nn.Embedding(WORDS, D), nn.ModuleList(Block() for _ in range(L)), nn.RMSNorm(D), nn.Linear(D, WORDS, bias=False)

    def forward(self, ids):
        x = self.word(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = RetNet().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
for step in range(5):
    ids = torch.randint(0, WORDS, (6, 1025), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(ids[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + 1e-4 * logits.logsumexp(-1).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    states = [torch.zeros(16, H, D // H, 2 * D // H, device="cuda") for _ in range(L)]
    word = torch.randint(0, WORDS, (16, 1), device="cuda")
    for t in range(24):
        x = model.word(word)
        for i, block in enumerate(model.blocks):
            y, states[i] = block.mix.step(block.n1(x), torch.full((1,), t, device="cuda"), states[i])
            x = block.rest(x + y)
        word = model.head(model.norm(x)).argmax(-1)
print(loss.item(), word.flatten().tolist()[:4])
