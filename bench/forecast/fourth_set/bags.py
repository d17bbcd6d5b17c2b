"""Bags of words with offsets, sparse gradients and SparseAdam beside a dense optimizer."""
import torch
import torch.nn as nn
torch.manual_seed(0)
bags = nn.ModuleList(nn.EmbeddingBag(n, 64, mode=mode, sparse=True) for n, mode in ((200000, "sum"), (50000, "mean"))).cuda()
top = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 1)).cuda()
sparse, dense = torch.optim.SparseAdam(list(bags.parameters()), lr=1e-3), torch.optim.Adagrad(top.parameters(), lr=1e-2)
for step in range(6):
    parts = []
    for bag in bags:
        lengths = torch.randint(5, 40, (1024,))
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        ids = torch.randint(0, bag.num_embeddings, (int(lengths.sum()),))
        parts.append(bag(ids.cuda(), offsets.cuda()))
    loss = nn.functional.binary_cross_entropy_with_logits(top(torch.cat(parts, 1)).squeeze(1), torch.rand(1024, device="cuda").round())
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
