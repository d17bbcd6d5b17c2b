"""Lightning's Fabric: two networks and two optimizers in 16-mixed."""
import torch
import torch.nn as nn
from lightning.fabric import Fabric
fabric = Fabric(accelerator="cuda", devices=1, precision="16-mixed")
fabric.launch()
fabric.seed_everything(0)
G = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 3 * 40 * 40), nn.Tanh())
D = nn.Sequential(nn.Linear(3 * 40 * 40, 1024), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(1024, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
G, og = fabric.setup(G, torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999)))
D, od = fabric.setup(D, torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999)))
bce = nn.BCEWithLogitsLoss()
for step in range(10):
    real = torch.rand(230, 4800, device=fabric.device)
    fake = G(torch.randn(230, 100, device=fabric.device))
    od.zero_grad()
    loss = bce(D(real), torch.ones(230, 1, device=fabric.device)) + bce(D(fake.detach()), torch.zeros(230, 1, device=fabric.device))
    fabric.backward(loss)
    od.step()
    og.zero_grad()
    fabric.backward(bce(D(fake), torch.ones(230, 1, device=fabric.device)))
    og.step()
    print(step, loss.item())
