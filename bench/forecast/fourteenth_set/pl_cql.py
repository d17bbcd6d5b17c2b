"""Conservative Q-learning on data that lies on the card: twin critics, actions drawn around the policy in numbers, logsumexp, a temperature, a multiplier learned."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
N, S, A, K = 1_000_000, 60, 12, 10
data = {"s": torch.randn(N, S, device="cuda"), "a": torch.rand(N, A, device="cuda") * 2 - 1, "r": torch.randn(N, 1, device="cuda"), "next": torch.randn(N, S, device="cuda"), "end": (torch.rand(N, 1, device="cuda") < 0.01).float()}
net = lambda into, out: nn.Sequential(nn.Linear(into, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, out)).cuda()
policy, critics = net(S, 2 * A), nn.ModuleList([net(S + A, 1), net(S + A, 1)])
slow = copy.deepcopy(critics).requires_grad_(False)
log_alpha, log_weight = (torch.zeros(1, device="cuda", requires_grad=True) for _ in range(2))
steps = [torch.optim.Adam(p, lr=3e-4) for p in (policy.parameters(), critics.parameters(), [log_alpha], [log_weight])]


def act(s, n=1):
    mean, log_std = policy(s).chunk(2, -1)
    log_std = log_std.clamp(-20, 2)
    if n > 1:
        mean, log_std = mean.repeat_interleave(n, 0), log_std.repeat_interleave(n, 0)
    normal = torch.distributions.Normal(mean, log_std.exp())
    raw = normal.rsample()
    return raw.tanh(), (normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)).sum(-1, keepdim=True)


both = lambda nets, s, a: [q(torch.cat([s, a], -1)) for q in nets]
for step in range(60):
    rows = torch.randint(0, N, (1024,), device="cuda")
    s, a, r, following, end = (data[k][rows] for k in ("s", "a", "r", "next", "end"))
    own, log = act(s)
    alpha_loss = -(log_alpha * (log + -A).detach()).mean()
    policy_loss = (log_alpha.exp().detach() * log - torch.min(*both(critics, s, own))).mean()
    with torch.no_grad():
        later, later_log = act(following)
        wanted = r + 0.99 * (1 - end) * (torch.min(*both(slow, following, later)) - log_alpha.exp() * later_log)
    said = both(critics, s, a)
    many, wide = s.repeat_interleave(K, 0), following.repeat_interleave(K, 0)
    guess = torch.rand(len(many), A, device="cuda") * 2 - 1
    (now, now_log), (then, then_log) = act(s, K), act(following, K)
    critic_loss = 0
    for i, q in enumerate(critics):
        every = torch.cat([q(torch.cat([many, guess], -1)) + A * 0.693, q(torch.cat([many, now.detach()], -1)) - now_log.detach(), q(torch.cat([wide, then.detach()], -1)) - then_log.detach()], 1).view(len(s), -1)
        gap = torch.logsumexp(every, 1).mean() - said[i].mean()
        critic_loss = critic_loss + F.mse_loss(said[i], wanted) + log_weight.exp().clamp(0, 1e6).detach() * 5 * (gap - 5)
    weight_loss = -(log_weight.exp() * (gap.detach() - 5))
    for optimizer, loss, last in zip(steps, (policy_loss, critic_loss, alpha_loss, weight_loss.sum()), (False, True, True, True)):
        optimizer.zero_grad()
        loss.backward(retain_graph=not last)
        optimizer.step() if last else None
    steps[0].step()
    with torch.no_grad():
        for p, q in zip(slow.parameters(), critics.parameters()):
            p.mul_(0.995).add_(q, alpha=0.005)
print(critic_loss.item(), log_alpha.item())
