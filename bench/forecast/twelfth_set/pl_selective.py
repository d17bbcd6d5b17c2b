"""A GPT of 0.4 billion, selective checkpointing: a policy keeps products and attention of every other kind, recomputes the rest, bf16 weights, fused AdamW."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

torch.manual_seed(0)
D, H, L, V, T = 1280, 20, 16, 32000, 1024
aten = torch.ops.aten


def contexts():
    seen = {"products": 0}

    def policy(ctx, op, *args, **kwargs):
        if op in (aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_cudnn_attention.default):
            return CheckpointPolicy.MUST_SAVE
        if op in (aten.mm.default, aten.addmm.default):
            seen["products"] += not ctx.is_recompute
            return CheckpointPolicy.MUST_SAVE if len(args[0].shape) and args[1].shape[-1] != 4 * D else CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.b(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
        return self.head(self.norm(x))


model = GPT().to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(4):
    ids = torch.randint(0, V, (8, T + 1), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
