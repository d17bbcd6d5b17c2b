"""A Wasserstein GAN of volumes: 3D convolutions both ways, a penalty on gradients, FP32."""
import torch
import torch.nn as nn
torch.manual_seed(0)
maker = nn.Sequential(nn.Unflatten(1, (128, 1, 1, 1)), nn.ConvTranspose3d(128, 256, 4), nn.InstanceNorm3d(256), nn.ReLU(),
                      nn.ConvTranspose3d(256, 128, 4, 2, 1), nn.InstanceNorm3d(128), nn.ReLU(), nn.ConvTranspose3d(128, 64, 4, 2, 1), nn.ReLU(),
                      nn.ConvTranspose3d(64, 1, 4, 2, 1), nn.Tanh()).cuda()
critic = nn.Sequential(nn.Conv3d(1, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv3d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv3d(128, 256, 4, 2, 1),
                       nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 64, 1)).cuda()
first, second = torch.optim.Adam(maker.parameters(), 1e-4, (0.0, 0.9)), torch.optim.Adam(critic.parameters(), 1e-4, (0.0, 0.9))
for step in range(6):
    real, fake = torch.randn(16, 1, 32, 32, 32, device="cuda"), maker(torch.randn(16, 128, device="cuda")).detach()
    share = torch.rand(16, 1, 1, 1, 1, device="cuda")
    between = (share * real + (1 - share) * fake).requires_grad_()
    slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    loss = critic(fake).mean() - critic(real).mean() + 10 * ((slope.flatten(1).norm(2, 1) - 1) ** 2).mean()
    second.zero_grad()
    loss.backward()
    second.step()
    if step % 3 == 2:
        first.zero_grad()
        (-critic(maker(torch.randn(16, 128, device="cuda"))).mean()).backward()
        first.step()
