"""torch.compile marks the length as one that varies; batches are sorted by length; an evaluation runs without gradients."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(6000, 256), nn.ModuleList(nn.Conv1d(256, 512, 5, padding=2) for _ in range(3))
        self.out = nn.Linear(256, 30)
    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        for mix in self.mix:
            x = x + nn.functional.glu(mix(x), 1)
        return self.out(x.transpose(1, 2))
model = Tagger().cuda()
fast = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.randint(0, 6000, (32, 100 + 37 * step), device="cuda")
    torch._dynamo.mark_dynamic(ids, 1)
    loss = nn.functional.cross_entropy(fast(ids).flatten(0, 1), torch.randint(0, 30, (ids.numel(),), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    fast(torch.randint(0, 6000, (64, 300), device="cuda"))
