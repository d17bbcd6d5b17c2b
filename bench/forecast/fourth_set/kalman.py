"""Kalman filters in a batch, FP64: small solves and Cholesky factors, differentiated through time."""
import torch
torch.manual_seed(0)
batch, n, m, steps = 4096, 8, 4, 40
kwargs = dict(device="cuda", dtype=torch.float64)
move = torch.nn.Parameter(torch.eye(n, **kwargs) + 0.01 * torch.randn(n, n, **kwargs))
see = torch.nn.Parameter(torch.randn(m, n, **kwargs) * 0.3)
optimizer = torch.optim.Adam([move, see], lr=1e-3)
seen = torch.randn(steps, batch, m, **kwargs)
eye = torch.eye(n, **kwargs)
for epoch in range(4):
    x, p, loss = torch.zeros(batch, n, 1, **kwargs), eye.expand(batch, n, n), 0.0
    for t in range(steps):
        x, p = move @ x, move @ p @ move.T + 0.1 * eye
        s = see @ p @ see.T + 0.1 * torch.eye(m, **kwargs)
        gain = torch.linalg.solve(s, see @ p).mT
        off = seen[t].unsqueeze(2) - see @ x
        root = torch.linalg.cholesky(s)
        loss = loss + (torch.cholesky_solve(off, root) * off).sum((1, 2)).mean() + 2 * root.diagonal(dim1=1, dim2=2).log().sum(1).mean()
        x, p = x + gain @ off, (eye - gain @ see) @ p
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
