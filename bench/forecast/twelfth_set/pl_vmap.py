"""torch.func: 24 networks trained at once by vmap over stacked states, jacrev and hessians of some of them, chunks, per-sample gradients with clipping."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, stack_module_state, vmap

torch.manual_seed(0)
many = [nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 10)).cuda() for _ in range(24)]
params, buffers = stack_module_state(many)
base = copy.deepcopy(many[0]).to("meta")
momenta = {k: torch.zeros_like(p) for k, p in params.items()}


def loss_of(p, b, x, y):
    return F.cross_entropy(functional_call(base, (p, b), (x,)), y)


for step in range(6):
    x, y = torch.randn(24, 2048, 64, device="cuda"), torch.randint(0, 10, (24, 2048), device="cuda")
    grads, losses = vmap(grad_and_value(loss_of), randomness="different")(params, buffers, x, y)
    with torch.no_grad():
        for k in params:
            momenta[k].mul_(0.9).add_(grads[k])
            params[k] = (params[k] - 0.05 * momenta[k]).detach()
one = {k: p[0] for k, p in params.items()}
each = vmap(grad(loss_of), in_dims=(None, None, 0, 0), chunk_size=128)(one, {}, x[0][:512, None], y[0][:512, None])
norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
clipped = {k: torch.einsum("n,n...->...", (1 / norms).clamp(max=1), g) / 512 for k, g in each.items()}
jacobian = vmap(jacrev(lambda x: functional_call(base, (one, {}), (x,))), chunk_size=256)(x[0])
curvature = vmap(hessian(lambda x: functional_call(base, (one, {}), (x,)).logsumexp(-1)))(x[0][:256])
print(losses.shape, len(clipped), jacobian.shape, curvature.shape)
