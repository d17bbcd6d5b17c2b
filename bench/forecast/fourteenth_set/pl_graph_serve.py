"""A small server by hand: a Llama of plain PyTorch whose decoding is captured for batches of 1 to 32 in one pool, pages of keys by slots, requests that come and end."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_grad_enabled(False)
D, H, G, L, WORDS, SLOTS, LONGEST = 1024, 16, 4, 10, 20000, 32, 512


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.o, self.gate, self.down = nn.Linear(D, D + 2 * D * G // H, bias=False), nn.Linear(D, D, bias=False), nn.Linear(D, 5632, bias=False), nn.Linear(2816, D, bias=False)
        self.register_buffer("keys", torch.zeros(2, SLOTS, G, LONGEST, D // H), persistent=False)

    def forward(self, x, slots, at, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).split([D, D * G // H, D * G // H], -1)
        q, k, v = (y.view(b, t, -1, D // H).transpose(1, 2) for y in (q, k, v))
        self.keys[0][slots[:, None], :, at] = k.transpose(1, 2)
        self.keys[1][slots[:, None], :, at] = v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, self.keys[0][slots], self.keys[1][slots], attn_mask=mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, D))
        a, c = self.gate(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(a) * c)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place, self.layers, self.norm, self.head = nn.Embedding(WORDS, D), nn.Embedding(LONGEST, D), nn.ModuleList(Layer() for _ in range(L)), nn.RMSNorm(D), nn.Linear(D, WORDS, bias=False)

    def forward(self, ids, slots, at):
        mask = (torch.arange(LONGEST, device="cuda") <= at[:, :, None])[:, None]
        x = self.word(ids) + self.place(at)
        for layer in self.layers:
            x = layer(x, slots, at, mask)
        return self.head(self.norm(x[:, -1]))


model = Llama().to(device="cuda", dtype=torch.bfloat16)
ids, slots, at = torch.zeros(SLOTS, 1, dtype=torch.long, device="cuda"), torch.arange(SLOTS, device="cuda"), torch.zeros(SLOTS, 1, dtype=torch.long, device="cuda")
graphs, outs, pool = {}, {}, None
for b in (32, 16, 8, 4, 2, 1):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(ids[:b], slots[:b], at[:b])
    torch.cuda.current_stream().wait_stream(side)
    graphs[b] = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graphs[b], pool=pool):
        outs[b] = model(ids[:b], slots[:b], at[:b]).argmax(-1)
    pool = pool or graphs[b].pool()
waiting = [torch.randint(0, WORDS, (int(n),)) for n in torch.randint(20, 200, (48,))]
left = torch.randint(10, 40, (48,)).tolist()
free, running, said, number = list(range(SLOTS)), [], 0, 0
while waiting or running:
    while waiting and free and len(running) < 32:
        text, slot = waiting.pop(0), free.pop()
        first = model(text[None].cuda(), torch.tensor([slot], device="cuda"), torch.arange(len(text), device="cuda")[None]).argmax(-1)
        running.append([slot, len(text), left[number], first])
        number += 1
    b = next(size for size in (1, 2, 4, 8, 16, 32) if size >= len(running))
    for row, (slot, n, _, word) in enumerate(running):
        ids[row], slots[row], at[row] = word, slot, n
    graphs[b].replay()
    for row, one in enumerate(running):
        one[1], one[2], one[3] = one[1] + 1, one[2] - 1, outs[b][row].clone()
        said += 1
    free += [one[0] for one in running if one[2] == 0]
    running = [one for one in running if one[2] > 0]
print(said, torch.cuda.memory_reserved() // 2**20)
