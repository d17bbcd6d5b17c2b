"""A spatial transformer and an optical flow: grids are sampled, pyramids are resized, smoothness is asked for."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def conv(a, b, s=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.LeakyReLU(0.1))
turn = nn.Sequential(conv(1, 16, 2), conv(16, 32, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 6)).cuda()
flow = nn.Sequential(conv(2, 32), conv(32, 64, 2), conv(64, 64), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1)).cuda()
optimizer = torch.optim.Adam([*turn.parameters(), *flow.parameters()], lr=1e-4)
eye = torch.tensor([1.0, 0, 0, 0, 1, 0], device="cuda")
for step in range(5):
    a, b = torch.rand(8, 1, 256, 256, device="cuda"), torch.rand(8, 1, 256, 256, device="cuda")
    loss = 0
    for scale in (0.25, 0.5, 1.0):
        x, y = (F.interpolate(t, scale_factor=scale, mode="bicubic", align_corners=False) for t in (a, b))
        x = F.grid_sample(x, F.affine_grid((turn(x) * 0.1 + eye).view(-1, 2, 3), x.shape, align_corners=False), align_corners=False)
        move = flow(torch.cat([x, y], 1))
        grid = F.affine_grid(eye.view(1, 2, 3).expand(8, 2, 3), x.shape, align_corners=False) + move.permute(0, 2, 3, 1)
        loss = loss + (F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False) - y).abs().mean()
        loss = loss + move.diff(dim=2).abs().mean() + move.diff(dim=3).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
