"""The neural tangent kernel of a small convnet by torch.func, and Hessian-vector products by forward over reverse."""
import torch
import torch.nn as nn
from torch.func import functional_call, grad, jacrev, jvp, vmap
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1152, 10)).cuda()
weights = {k: v.detach() for k, v in model.named_parameters()}
def one(w, x):
    return functional_call(model, w, (x.unsqueeze(0),)).squeeze(0)
def kernel(a, b):
    left, right = vmap(jacrev(one), (None, 0))(weights, a), vmap(jacrev(one), (None, 0))(weights, b)
    return sum(torch.einsum("naf,mbf->nmab", left[k].flatten(2), right[k].flatten(2)) for k in left)
for _ in range(2):
    kernel(torch.randn(48, 3, 32, 32, device="cuda"), torch.randn(32, 3, 32, 32, device="cuda"))
x, y = torch.randn(128, 3, 32, 32, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
def loss(w):
    return nn.functional.cross_entropy(functional_call(model, w, (x,)), y)
for _ in range(2):
    jvp(grad(loss), (weights,), ({k: torch.randn_like(v) for k, v in weights.items()},))
