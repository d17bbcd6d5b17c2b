"""VQ-VAE: codes by distance, the book updated by averages, dead codes replaced."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
down = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 64, 3, padding=1)).cuda()
up = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)).cuda()
book, count = torch.randn(1024, 64, device="cuda"), torch.ones(1024, device="cuda")
sums = book.clone()
optimizer = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=3e-4)
for step in range(5):
    images = torch.rand(32, 3, 128, 128, device="cuda")
    z = down(images).permute(0, 2, 3, 1)
    flat = z.flatten(0, 2)
    far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ book.T + book.pow(2).sum(1)
    code = far.argmin(1)
    with torch.no_grad():
        hot = F.one_hot(code, 1024).float()
        count.lerp_(hot.sum(0), 0.01)
        sums.lerp_(hot.T @ flat, 0.01)
        book = sums / count.clamp(min=1e-3)[:, None]
        dead = count < 0.5
        book[dead] = flat[torch.randint(0, len(flat), (int(dead.sum()),), device="cuda")]
    q = book[code].view_as(z)
    back = up((z + (q - z).detach()).permute(0, 3, 1, 2))
    loss = F.mse_loss(back, images) + 0.25 * F.mse_loss(z, q)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
