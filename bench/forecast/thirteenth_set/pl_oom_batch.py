"""A training loop that halves its micro-batch when memory runs out and tries the batch again: 2.5 GiB allowed, longer texts come later, GPT by PyTorch's layers."""
import gc
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(2.5 * 2**30 / total)


class Gpt(nn.Module):
    def __init__(self, vocab=20000, dim=640, depth=8):
        super().__init__()
        self.embed, self.where = nn.Embedding(vocab, dim), nn.Embedding(2048, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 10, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.where.weight[:ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


model = Gpt().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
micro, turned = 16, []
for step, length in enumerate((256, 256, 512, 512, 768)):
    ids = torch.randint(0, 20000, (16, length + 1), device="cuda")
    while True:
        try:
            for part in ids.split(micro):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(part[:, :-1]).flatten(0, 1).float(), part[:, 1:].flatten()) * len(part) / 16
                loss.backward()
            break
        except torch.cuda.OutOfMemoryError:
            if micro == 1:
                raise
            micro //= 2
            loss = None
            optimizer.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()
    turned.append(micro)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(turned, loss.item())
