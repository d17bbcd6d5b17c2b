"""Evolution strategies: a population of policies by functional_call and vmap, noise in antithetic pairs, ranks as fitness, worlds stepped on the card, no gradients."""
import torch
import torch.nn as nn
from torch.func import functional_call, vmap

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(48, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8), nn.Tanh()).cuda()
mean = {k: v.detach().clone() for k, v in policy.named_parameters()}
moved, turn, half, sigma = {k: torch.zeros_like(v) for k, v in mean.items()}, torch.linalg.qr(torch.randn(48, 48, device="cuda"))[0], 512, 0.05
push = torch.randn(8, 48, device="cuda") * 0.2
act = vmap(lambda w, s: functional_call(policy, w, (s,)), in_dims=(0, 0))


@torch.no_grad()
def rollout(weights, members, steps=60):
    state = torch.randn(1, 4, 48, device="cuda").expand(members, -1, -1).contiguous()
    total, alive = torch.zeros(members, 4, device="cuda"), torch.ones(members, 4, dtype=torch.bool, device="cuda")
    for _ in range(steps):
        state = 0.98 * state @ turn + act(weights, state) @ push
        total += torch.where(alive, state[..., 0] - 0.01 * state.pow(2).mean(-1), 0)
        alive &= state.abs().amax(-1) < 8
        if not alive.any():
            break
    return total.mean(1)


for generation in range(6):
    noise = {k: torch.randn(half, *v.shape, device="cuda") for k, v in mean.items()}
    weights = {k: torch.cat([mean[k] + sigma * n, mean[k] - sigma * n]) for k, n in noise.items()}
    fitness = rollout(weights, 2 * half)
    ranks = fitness.argsort().argsort().float() / (2 * half - 1) - 0.5
    gain = ranks[:half] - ranks[half:]
    for k, n in noise.items():
        g = torch.tensordot(gain, n, 1) / (half * sigma)
        moved[k].mul_(0.9).add_(g)
        mean[k].add_(0.02 * moved[k] - 0.005 * mean[k])
    print(generation, fitness.mean().item(), fitness.max().item())
