"""torch.compile with mode reduce-overhead: inference of a ViT for two batch sizes, then training of a head."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * 14 * 14, 510)
        self.place = nn.Parameter(torch.randn(1, 144, 510) * 0.02)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(510, 6, 2040, 0.0, "gelu", batch_first=True, norm_first=True), 6, enable_nested_tensor=False)
    def forward(self, x):
        x = x.unfold(2, 14, 14).unfold(3, 14, 14).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return self.blocks(self.patch(x) + self.place).mean(1)
body, head = ViT().cuda().eval().bfloat16(), nn.Linear(510, 100).cuda().bfloat16()
fast = torch.compile(body, mode="reduce-overhead")
optimizer = torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)
for step in range(8):
    with torch.no_grad():
        features = fast(torch.randn(19, 3, 168, 168, device="cuda", dtype=torch.bfloat16)).clone()
    loss = nn.functional.cross_entropy(head(features).float(), torch.randint(0, 100, (19,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
