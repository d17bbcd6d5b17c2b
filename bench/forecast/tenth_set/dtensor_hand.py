"""DTensor by hand: a two-layer net whose weights are distributed by columns and rows, redistribute, Partial sums, an embedding sharded by rows, SGD in place on local shards."""
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, ones, randn
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2,))
torch.manual_seed(0)
table = distribute_tensor(torch.randn(20000, 1024, device="cuda") * 0.02, mesh, [Shard(0)]).requires_grad_()
w1 = (randn(1024, 8192, device_mesh=mesh, placements=[Shard(1)]) * 0.02).detach().requires_grad_()
w2 = (randn(8192, 1024, device_mesh=mesh, placements=[Shard(0)]) * 0.02).detach().requires_grad_()
scale = ones(1024, device_mesh=mesh, placements=[Replicate()], requires_grad=True)
params = [table, w1, w2, scale]
moments = [torch.zeros_like(p) for p in params]
for step in range(8):
    i = distribute_tensor(torch.randint(0, 20000, (16, 256), device="cuda"), mesh, [Replicate()])
    x = F.embedding(i, table).redistribute(mesh, [Replicate()])
    h = F.gelu(x @ w1) @ w2
    h = F.layer_norm(h.redistribute(mesh, [Shard(1)]), (1024,)) * scale
    loss = (h - x.redistribute(mesh, [Shard(1)])).square().mean()
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, m, g in zip(params, moments, grads):
            m.mul_(0.9).add_(g.redistribute(mesh, p.placements))
            p.sub_(m, alpha=0.01)
print(rank, loss.full_tensor().item(), isinstance(loss, DTensor))
dist.destroy_process_group()
