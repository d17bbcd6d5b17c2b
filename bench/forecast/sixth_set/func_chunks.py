"""torch.func: gradients of each example in chunks for a Fisher matrix, a Jacobian in chunks, a linearised network, stacked models in vmap with random dropout."""
import torch
import torch.nn as nn
from torch.func import functional_call, grad, jacrev, linearize, stack_module_state, vmap
torch.manual_seed(0)
make = lambda: nn.Sequential(nn.Linear(96, 530), nn.Tanh(), nn.Dropout(0.1), nn.Linear(530, 530), nn.GELU(), nn.Linear(530, 12)).cuda()
model = make()
weights = {k: v.detach() for k, v in model.named_parameters()}
x, y = torch.randn(300, 96, device="cuda"), torch.randint(0, 12, (300,), device="cuda")
def loss(w, a, b):
    return nn.functional.cross_entropy(functional_call(model, w, (a[None],)), b[None])
each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different", chunk_size=70)(weights, x, y)
fisher = {k: g.square().mean(0) for k, g in each.items()}
big = torch.cat([g.flatten(1) for g in each.values()], 1)
print((big @ big.T).shape, torch.cuda.max_memory_allocated() // 2**20)
del each, big
model.eval()
J = jacrev(lambda w: functional_call(model, w, (x[:20],)), chunk_size=33)(weights)
print({k: tuple(v.shape) for k, v in J.items()})
del J
out, along = linearize(lambda w: functional_call(model, w, (x,)), weights)
print(along({k: torch.randn_like(v) for k, v in weights.items()}).shape)
parameters, buffers = stack_module_state([make() for _ in range(9)])
optimizer = torch.optim.Adam(parameters.values(), 1e-3)
base = make().to("meta")
for _ in range(3):
    logits = vmap(lambda p, b, d: functional_call(base, (p, b), (d,)), in_dims=(0, 0, None), randomness="different")(parameters, buffers, x)
    total = nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(9))
    total.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(total.item())
