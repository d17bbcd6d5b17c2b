"""A graph network by sparse matrices: a normalised adjacency in CSR, edges dropped by rebuilding COO, hidden layers joined, Adam, full batch; scores
of links after it."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
N, E, I, H, C = 20000, 160000, 500, 256, 40
edges = torch.randint(0, N, (2, E)).cuda()
x, y = torch.randn(N, I, device="cuda"), torch.randint(0, C, (N,), device="cuda")
train = (torch.rand(N, generator=torch.Generator().manual_seed(1)) < 0.6).cuda()
def adjacency(keep=None):
    e = edges if keep is None else edges[:, keep]
    values = torch.ones(e.shape[1], device="cuda")
    degree = torch.zeros(N, device="cuda").scatter_add_(0, e[1], values).clamp(min=1).rsqrt()
    return torch.sparse_coo_tensor(e, degree[e[0]] * degree[e[1]], (N, N)).coalesce()
full = adjacency().to_sparse_csr()
layers, out = nn.ModuleList(nn.Linear(I if i == 0 else H, H) for i in range(3)).cuda(), nn.Linear(3 * H, C).cuda()
norms = nn.ModuleList(nn.BatchNorm1d(H) for _ in range(3)).cuda()
def forward(a, x):
    kept = []
    for layer, norm in zip(layers, norms):
        x = F.dropout(F.relu(norm(a @ layer(x))), 0.4, layers.training)
        kept.append(x)
    return out(torch.cat(kept, 1)), x
optimizer = torch.optim.Adam([*layers.parameters(), *norms.parameters(), *out.parameters()], 1e-2, weight_decay=5e-4)
picks = [torch.randperm(E, generator=torch.Generator().manual_seed(s))[:E * 4 // 5].cuda() for s in range(5)]
for step in range(5):
    logits, h = forward(adjacency(picks[step]) if step % 2 else full, x)
    loss = F.cross_entropy(logits[train], y[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
layers.eval()
with torch.no_grad():
    logits, h = forward(full, x)
    print(loss.item(), (logits.argmax(1) == y)[~train].float().mean().item(), (h[edges[0, :50000]] * h[edges[1, :50000]]).sum(1).topk(10).values)
