"""Decoding as gpt-fast does: a Llama of 0.6 billion in bf16, a static cache, prefill as it is, one word at a time compiled with mode="reduce-overhead"."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, H, K, L, V, T = 1536, 12, 4, 12, 32000, 512


class Attention(nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, (H + 2 * K) * D // H, bias=False), nn.Linear(D, D, bias=False)
        self.register_buffer("k", torch.zeros(batch, K, T, D // H))
        self.register_buffer("v", torch.zeros(batch, K, T, D // H))

    def forward(self, x, mask, at):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split([D, K * D // H, K * D // H], -1)
        q, k, v = (y.view(b, t, -1, D // H).transpose(1, 2) for y in (q, k, v))
        self.k[:, :, at] = k
        self.v[:, :, at] = v
        k, v = self.k.repeat_interleave(H // K, 1), self.v.repeat_interleave(H // K, 1)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, t, D))


class Block(nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.attention = Attention(batch)
        self.a, self.b = nn.RMSNorm(D), nn.RMSNorm(D)
        self.gate, self.up, self.down = nn.Linear(D, 4096, bias=False), nn.Linear(D, 4096, bias=False), nn.Linear(4096, D, bias=False)

    def forward(self, x, mask, at):
        x = x + self.attention(self.a(x), mask, at)
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(V, D), nn.RMSNorm(D), nn.Linear(D, V, bias=False)
        self.blocks = nn.ModuleList(Block(batch) for _ in range(L))
        self.register_buffer("seen", torch.tril(torch.ones(T, T, dtype=torch.bool)))

    def forward(self, ids, at):
        x, mask = self.words(ids), self.seen[None, None, at]
        for block in self.blocks:
            x = block(x, mask, at)
        return self.head(self.norm(x))


def drawn(logits):
    v, _ = torch.topk(logits, 50)
    p = torch.softmax(torch.where(logits < v[..., -1:], -float("inf"), logits / 0.8).float(), -1)
    return torch.argmax(p / torch.empty_like(p).exponential_(1), -1, keepdim=True)


def one(model, ids, at):
    return drawn(model(ids, at)[:, -1])


batch = 8
with torch.device("cuda"), torch.inference_mode():
    torch.set_default_dtype(torch.bfloat16)
    model = Llama(batch).eval()
    step = torch.compile(one, mode="reduce-overhead")
    prompt = torch.randint(0, V, (batch, 256))
    word, said = one(model, prompt, torch.arange(256)), []
    for i in range(256, 296):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            word = step(model, word, torch.tensor([i])).clone()
        said.append(word)
print(torch.cat(said, 1).shape)
