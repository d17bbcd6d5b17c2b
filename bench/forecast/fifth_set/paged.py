"""A server by hand: pages of keys and values, a table of pages for each request, requests join and leave, greedy words."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_grad_enabled(False)
layers, heads, kv_heads, dim, page, pages = 8, 12, 4, 64, 16, 2000
d, words = heads * dim, 24001
def lin(a, b):
    return (torch.randn(b, a, device="cuda") * 0.02).bfloat16()
W = [dict(q=lin(d, d), k=lin(d, kv_heads * dim), v=lin(d, kv_heads * dim), o=lin(d, d), up=lin(d, 4 * d), down=lin(4 * d, d)) for _ in range(layers)]
embed = lin(d, words)
keys = torch.empty(layers, pages, page, kv_heads, dim, dtype=torch.bfloat16, device="cuda")
values = torch.empty_like(keys)
free = list(range(pages))
class Request:
    def __init__(self, prompt, room):
        self.ids, self.room, self.table, self.seen = prompt, room, [], 0
    def grow(self, n):
        while len(self.table) * page < self.seen + n:
            self.table.append(free.pop())
def forward(batch, ids, counts):
    x = F.embedding(ids, embed)
    places = torch.cat([torch.arange(r.seen, r.seen + n) for r, n in zip(batch, counts)]).cuda()
    slots = torch.cat([torch.tensor([r.table[p // page] * page + p % page for p in range(r.seen, r.seen + n)]) for r, n in zip(batch, counts)]).cuda()
    longest = max(r.seen + n for r, n in zip(batch, counts))
    tables = torch.zeros(len(batch), -(-longest // page), dtype=torch.long)
    for i, r in enumerate(batch):
        tables[i, :len(r.table)] = torch.tensor(r.table)[:tables.shape[1]]
    tables = tables.cuda()
    total = torch.tensor([r.seen + n for r, n in zip(batch, counts)], device="cuda")
    for i, w in enumerate(W):
        h = F.rms_norm(x, (d,))
        q, k, v = h @ w["q"].T, (h @ w["k"].T).view(-1, kv_heads, dim), (h @ w["v"].T).view(-1, kv_heads, dim)
        keys[i].view(-1, kv_heads, dim)[slots] = k
        values[i].view(-1, kv_heads, dim)[slots] = v
        if counts[0] > 1:
            outs = [F.scaled_dot_product_attention(a.view(1, -1, heads, dim).transpose(1, 2), b[None].transpose(1, 2), c[None].transpose(1, 2), is_causal=True, enable_gqa=True)
                    .transpose(1, 2).reshape(-1, d) for a, b, c in zip(q.split(counts), k.split(counts), v.split(counts))]
            a = torch.cat(outs)
        else:
            K, V = keys[i][tables].flatten(1, 2), values[i][tables].flatten(1, 2)
            mask = torch.arange(K.shape[1], device="cuda")[None] < total[:, None]
            a = F.scaled_dot_product_attention(q.view(len(batch), 1, heads, dim).transpose(1, 2), K.transpose(1, 2), V.transpose(1, 2), attn_mask=mask[:, None, None], enable_gqa=True)
            a = a.transpose(1, 2).reshape(-1, d)
        x = x + a @ w["o"].T
        x = x + F.gelu(F.rms_norm(x, (d,)) @ w["up"].T) @ w["down"].T
    ends = torch.tensor(counts).cumsum(0).cuda() - 1
    return (x[ends] @ embed.T).argmax(-1)
gen = torch.Generator().manual_seed(1)
waiting = [Request(torch.randint(0, words, (int(torch.randint(20, 700, (1,), generator=gen)),), generator=gen).tolist(), int(torch.randint(5, 40, (1,), generator=gen))) for _ in range(40)]
running = []
while waiting or running:
    new = []
    while waiting and len(running) + len(new) < 12:
        new.append(waiting.pop())
    if new:
        for r in new:
            r.grow(len(r.ids))
        counts = [len(r.ids) for r in new]
        out = forward(new, torch.tensor(sum((r.ids for r in new), []), device="cuda"), counts)
        for r, n, w in zip(new, counts, out.tolist()):
            r.seen += n
            r.ids.append(w)
        running += new
    for r in running:
        r.grow(1)
    out = forward(running, torch.tensor([r.ids[-1] for r in running], device="cuda"), [1] * len(running))
    for r, w in zip(running, out.tolist()):
        r.seen += 1
        r.room -= 1
        r.ids.append(w)
    for r in [r for r in running if r.room <= 0]:
        free.extend(r.table)
        running.remove(r)
print(len(free))
