"""torch.compile with mode="max-autotune-no-cudagraphs" on a mixer of sequences (gated MLPs), dynamic lengths marked, bf16, an optimizer step compiled, too."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 6 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        a, b = self.up(self.norm(x)).chunk(2, -1)
        a = a.cumsum(1) / torch.arange(1, a.shape[1] + 1, device=a.device, dtype=a.dtype)[:, None]
        return x + self.down(F.silu(a) * b)


model = nn.Sequential(nn.Embedding(12000, 768), *[Gated(768) for _ in range(4)], nn.Linear(768, 12000)).to("cuda", torch.bfloat16)
compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True)
update = torch.compile(optimizer.step)
for step in range(5):
    ids = torch.randint(0, 12000, (8, 513), device="cuda")
    loss = F.cross_entropy(compiled(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    update()
    optimizer.zero_grad()
print(loss.item())
