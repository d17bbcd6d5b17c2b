"""A world model: pictures to codes of 32 classes drawn straight through, a recurrent state by GRU cell over 24 places, pictures again, then an actor
and a critic in 12 imagined steps, three optimizers."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
H, Z, A = 512, 32 * 32, 5
c = lambda i, o: [nn.Conv2d(i, o, 4, 2, 1), nn.SiLU()]
u = lambda i, o: [nn.ConvTranspose2d(i, o, 4, 2, 1), nn.SiLU()]
eyes = nn.Sequential(*c(3, 32), *c(32, 64), *c(64, 128), *c(128, 256), nn.Flatten()).cuda()
draw = nn.Sequential(nn.Linear(H + Z, 4096), nn.Unflatten(1, (256, 4, 4)), *u(256, 128), *u(128, 64), *u(64, 32), nn.ConvTranspose2d(32, 3, 4, 2, 1)).cuda()
cell, into = nn.GRUCell(H, H).cuda(), nn.Sequential(nn.Linear(Z + A, H), nn.LayerNorm(H), nn.SiLU()).cuda()
prior, post = nn.Linear(H, Z).cuda(), nn.Linear(H + 4096, Z).cuda()
head = lambda o: nn.Sequential(nn.Linear(H + Z, H), nn.SiLU(), nn.Linear(H, o)).cuda()
reward, goes_on, actor, critic = head(1), head(1), head(A), head(1)
world = [p for m in (eyes, draw, cell, into, prior, post, reward, goes_on) for p in m.parameters()]
wo, ao, co = torch.optim.Adam(world, 1e-4), torch.optim.Adam(actor.parameters(), 3e-5), torch.optim.Adam(critic.parameters(), 3e-5)
def sample(logits):
    d = torch.distributions.OneHotCategoricalStraightThrough(logits=logits.view(-1, 32, 32))
    return d.rsample().flatten(1), d
for step in range(4):
    B, T = 12, 24
    x, a, r = torch.rand(B, T, 3, 64, 64, device="cuda"), F.one_hot(torch.randint(0, A, (B, T)), A).float().cuda(), torch.randn(B, T, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        seen = eyes(x.flatten(0, 1)).view(B, T, -1)
    h, z, states, kl = torch.zeros(B, H, device="cuda"), torch.zeros(B, Z, device="cuda"), [], 0
    for t in range(T):
        h = cell(into(torch.cat([z, a[:, t]], 1)), h)
        _, p = sample(prior(h))
        z, q = sample(post(torch.cat([h, seen[:, t].float()], 1)))
        kl = kl + torch.distributions.kl_divergence(torch.distributions.OneHotCategorical(logits=q.logits.detach()), p).sum(1).clamp(min=1).mean()
        states.append(torch.cat([h, z], 1))
    s = torch.stack(states, 1).flatten(0, 1)
    loss = F.mse_loss(draw(s), x.flatten(0, 1), reduction="none").sum((1, 2, 3)).mean() + kl / T + F.mse_loss(reward(s)[:, 0], r.flatten()) + F.binary_cross_entropy_with_logits(goes_on(s)[:, 0], torch.ones(B * T, device="cuda"))
    wo.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(world, 100.0)
    wo.step()
    for p in world:
        p.requires_grad_(False)
    s, traj, entropy = s.detach(), [], 0
    for t in range(12):
        d = torch.distributions.OneHotCategoricalStraightThrough(logits=actor(s))
        entropy = entropy + d.entropy().mean()
        h = cell(into(torch.cat([s[:, H:], d.rsample()], 1)), s[:, :H])
        s = torch.cat([h, sample(prior(h))[0]], 1)
        traj.append(s)
    traj = torch.stack(traj)
    v, rew = critic(traj)[..., 0], reward(traj)[..., 0]
    target = [v[-1]]
    for t in reversed(range(11)):
        target.append(rew[t] + 0.99 * (0.05 * v[t + 1] + 0.95 * target[-1]))
    target = torch.stack(target[::-1])
    ao.zero_grad()
    (-target.mean() - 3e-4 * entropy).backward()
    ao.step()
    co.zero_grad()
    F.mse_loss(critic(traj.detach())[..., 0], target.detach()).backward()
    co.step()
    for p in world:
        p.requires_grad_(True)
print(loss.item())
