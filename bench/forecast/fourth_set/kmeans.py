"""k-means by chunks of distances and sums by index, empty centres drawn anew; then products quantised."""
import torch
torch.manual_seed(0)
x = torch.randn(400000, 64, device="cuda")
centres = x[torch.randperm(len(x), device="cuda")[:1024]].clone()
for turn in range(6):
    nearest = torch.cat([torch.cdist(part, centres).argmin(1) for part in x.split(65536)])
    sums = torch.zeros_like(centres).index_add_(0, nearest, x)
    count = torch.zeros(1024, device="cuda").index_add_(0, nearest, torch.ones(len(x), device="cuda"))
    centres = torch.where(count[:, None] > 0, sums / count[:, None].clamp(min=1), x[torch.randint(0, len(x), (1024,), device="cuda")])
order = nearest.argsort()
torch.segment_reduce(x[order], "mean", lengths=torch.full((4000,), 100, device="cuda"), axis=0)
half = x[:, :32].half()
codes = torch.stack([torch.cdist(half[:, i * 8:i * 8 + 8].float(), torch.randn(256, 8, device="cuda")).argmin(1).to(torch.uint8) for i in range(4)], 1)
codes.cpu()
