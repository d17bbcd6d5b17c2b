"""e3nn: a network that turns with its molecule, gated convolutions over edges by spherical harmonics and tensor products, energies and forces by their gradients."""
import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn import FullyConnectedNet, Gate
torch.manual_seed(0)
sh = o3.Irreps.spherical_harmonics(2)
class Layer(torch.nn.Module):
    def __init__(self, inner, scalars, gates, gated):
        super().__init__()
        self.gate = Gate(scalars, [torch.nn.functional.silu], gates, [torch.sigmoid], gated)
        self.tp = o3.FullyConnectedTensorProduct(inner, sh, self.gate.irreps_in, shared_weights=False, internal_weights=False)
        self.weights, self.own = FullyConnectedNet([10, 64, self.tp.weight_numel], torch.nn.functional.silu), o3.Linear(inner, self.gate.irreps_in)
    def forward(self, x, source, target, edges, lengths):
        m = self.tp(x[source], edges, self.weights(lengths))
        return self.gate(self.own(x) + torch.zeros(len(x), m.shape[1], device=x.device).index_add(0, target, m) / 4)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 32)
        self.layers = torch.nn.ModuleList([Layer("32x0e", "32x0e", "24x0e", "16x1o+8x2e"), Layer("32x0e+16x1o+8x2e", "32x0e", "24x0e", "16x1o+8x2e"), Layer("32x0e+16x1o+8x2e", "32x0e", "8x0e", "8x1o")])
        self.out = o3.Linear("32x0e+8x1o", "1x0e")
    def forward(self, z, pos, source, target):
        d = pos[source] - pos[target]
        lengths = soft_one_hot_linspace(d.norm(dim=1), 0.0, 5.0, 10, basis="smooth_finite", cutoff=True)
        edges, x = o3.spherical_harmonics(sh, d, True, normalization="component"), self.embed(z)
        for layer in self.layers:
            x = layer(x, source, target, edges, lengths)
        return self.out(x).sum()
net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, amsgrad=True)
for step in range(5):
    pos, z = (torch.rand(800, 3, device="cuda") * 20).requires_grad_(), torch.randint(0, 10, (800,), device="cuda")
    source, target = torch.randint(0, 800, (9000,), device="cuda"), torch.randint(0, 800, (9000,), device="cuda")
    energy = net(z, pos, source, target)
    forces, = torch.autograd.grad(-energy, pos, create_graph=True)
    loss = (energy - 1.0) ** 2 + forces.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
