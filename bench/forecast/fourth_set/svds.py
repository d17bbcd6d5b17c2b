"""Decompositions: a matrix completed by its singular values, principal components, least squares."""
import torch
torch.manual_seed(0)
a = torch.randn(1200, 400, device="cuda")
mask = torch.rand_like(a) < 0.5
x = a * mask
for step in range(4):
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    low = (u * (s - 5).clamp(min=0)) @ v
    x = torch.where(mask, a, low)
torch.pca_lowrank(torch.randn(20000, 256, device="cuda"), q=32)
torch.linalg.lstsq(torch.randn(16, 300, 40, device="cuda"), torch.randn(16, 300, 5, device="cuda"))
torch.linalg.pinv(torch.randn(300, 200, device="cuda"))
torch.linalg.slogdet(torch.randn(64, 100, 100, device="cuda"))
