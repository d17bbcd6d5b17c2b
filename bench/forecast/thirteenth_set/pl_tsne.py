"""Exact t-SNE of 6000 points on the card: each point's breadth found by halving, early exaggeration, momentum and gains, by the usual script."""
import argparse
import torch


def distances(x):
    squares = x.pow(2).sum(1)
    return (squares[:, None] - 2 * x @ x.T + squares[None]).clamp_min_(0)


def affinities(x, perplexity, rounds=40):
    d = distances(x)
    d.fill_diagonal_(float("inf"))
    beta, low, high = torch.ones(len(x), 1, device=x.device), torch.zeros(len(x), 1, device=x.device), torch.full((len(x), 1), float("inf"), device=x.device)
    goal = torch.log(torch.tensor(perplexity, device=x.device))
    for _ in range(rounds):
        p = torch.exp(-d * beta)
        total = p.sum(1, keepdim=True).clamp_min(1e-12)
        entropy = total.log() + beta * (torch.nan_to_num(d, posinf=0) * p).sum(1, keepdim=True) / total
        wide = entropy > goal
        low, high = torch.where(wide, beta, low), torch.where(wide, high, beta)
        beta = torch.where(wide, torch.where(high.isinf(), beta * 2, (beta + high) / 2), (beta + low) / 2)
        if (entropy - goal).abs().max() < 1e-5:
            break
    p = p / total
    return ((p + p.T) / (2 * len(x))).clamp_min_(1e-12)


parser = argparse.ArgumentParser()
parser.add_argument("--points", type=int, default=6000)
parser.add_argument("--dims", type=int, default=50)
parser.add_argument("--perplexity", type=float, default=30.0)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
raw = torch.randn(args.points, 784, device="cuda") + 3 * torch.randn(10, 784, device="cuda").repeat_interleave(args.points // 10, 0)
raw -= raw.mean(0)
_, axes = torch.linalg.eigh(raw.T @ raw)
p = affinities(raw @ axes[:, -args.dims:], args.perplexity) * 4
y = 1e-4 * torch.randn(args.points, 2, device="cuda")
moved, gains = torch.zeros_like(y), torch.ones_like(y)
for step in range(args.steps):
    near = 1 / (1 + distances(y))
    near.fill_diagonal_(0)
    q = (near / near.sum()).clamp_min(1e-12)
    weights = (p - q) * near
    gradient = 4 * (weights.sum(1, keepdim=True) * y - weights @ y)
    same = (gradient > 0) == (moved > 0)
    gains = torch.where(same, gains * 0.8, gains + 0.2).clamp_min(0.01)
    moved = (0.5 if step < 20 else 0.8) * moved - 200 * gains * gradient
    y = y + moved
    y -= y.mean(0)
    if step == 100:
        p /= 4
    if step % 40 == 0:
        print(step, (p * (p / q).log()).sum().item())
torch.save(y.cpu(), "/dev/null")
