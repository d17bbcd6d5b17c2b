"""vector-quantize-pytorch: an autoencoder whose codes are residual vectors found by k-means, with dead codes replaced, then finite scalars, then without a look-up."""
import torch
import torch.nn as nn
from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ
torch.manual_seed(0)
class Auto(nn.Module):
    def __init__(self, quantizer, dim):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.MaxPool2d(2), nn.GELU(), nn.Conv2d(64, dim, 3, padding=1), nn.MaxPool2d(2))
        self.quantizer = quantizer
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(dim, 64, 3, padding=1), nn.GELU(), nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(64, 3, 3, padding=1))
    def forward(self, x):
        z = self.down(x)
        flat = isinstance(self.quantizer, ResidualVQ)
        q, ids, *rest = self.quantizer(z.flatten(2).transpose(1, 2) if flat else z)
        return self.up(q.transpose(1, 2).reshape(z.shape) if flat else q).clamp(-1, 1), rest[0].sum() if rest else 0.0
made = ((ResidualVQ(dim=64, num_quantizers=4, codebook_size=512, kmeans_init=True, kmeans_iters=5, threshold_ema_dead_code=2, stochastic_sample_codes=True), 64), (FSQ([8, 5, 5, 5]), 4), (LFQ(dim=10, codebook_size=1024), 10))
for quantizer, dim in made:
    model = Auto(quantizer, dim).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(5):
        x = torch.rand(16, 3, 96, 96).cuda() * 2 - 1
        out, extra = model(x)
        loss = (out - x).abs().mean() + 10 * extra
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
