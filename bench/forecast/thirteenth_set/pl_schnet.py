"""A SchNet by hand: boxes of atoms of several sizes, pairs nearer than a cutoff by cdist and nonzero, energies and forces, AdamW with amsgrad, an EMA."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)


class Ssp(nn.Module):
    def forward(self, x):
        return F.softplus(x) - 0.6931


class Interaction(nn.Module):
    def __init__(self, dim, rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(rbf, dim), Ssp(), nn.Linear(dim, dim))
        self.into, self.out = nn.Linear(dim, dim, bias=False), nn.Sequential(nn.Linear(dim, dim), Ssp(), nn.Linear(dim, dim))

    def forward(self, h, i, j, spread, cut):
        w = self.filter(spread) * cut[:, None]
        return h + self.out(torch.zeros_like(h).index_add(0, i, self.into(h)[j] * w))


class SchNet(nn.Module):
    def __init__(self, dim=128, rbf=64, depth=4, cutoff=5.0):
        super().__init__()
        self.cutoff, self.embed = cutoff, nn.Embedding(20, dim)
        self.register_buffer("centres", torch.linspace(0, cutoff, rbf))
        self.layers = nn.ModuleList(Interaction(dim, rbf) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(dim, dim // 2), Ssp(), nn.Linear(dim // 2, 1))

    def forward(self, kinds, places, molecule, molecules):
        with torch.no_grad():
            near = (torch.cdist(places, places) < self.cutoff) & (molecule[:, None] == molecule[None])
            near.fill_diagonal_(False)
            i, j = near.nonzero(as_tuple=True)
        d = (places[i] - places[j]).norm(dim=1)
        spread = torch.exp(-10 * (d[:, None] - self.centres).pow(2))
        cut = 0.5 * (torch.cos(d * torch.pi / self.cutoff) + 1)
        h = self.embed(kinds)
        for layer in self.layers:
            h = layer(h, i, j, spread, cut)
        return torch.zeros(molecules, device=h.device).index_add(0, molecule, self.head(h)[:, 0])


model = SchNet().cuda()
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, amsgrad=True)
for step in range(5):
    counts = torch.randint(16, 40, (48,)).tolist()
    total = sum(counts)
    places = (torch.rand(total, 3, device="cuda") * 9).requires_grad_()
    kinds, molecule = torch.randint(1, 20, (total,), device="cuda"), torch.repeat_interleave(torch.arange(48), torch.tensor(counts)).cuda()
    energy = model(kinds, places, molecule, 48)
    forces = -torch.autograd.grad(energy.sum(), places, create_graph=True)[0]
    loss = F.mse_loss(energy, torch.randn_like(energy)) + 100 * F.mse_loss(forces, torch.randn_like(forces))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)
print(loss.item())
