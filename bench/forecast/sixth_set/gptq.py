"""GPTQ by hand: Hessians of each layer's inputs gathered by hooks, Cholesky factors, columns quantised in blocks with the error passed on."""
import torch
import torch.nn as nn
torch.manual_seed(0)
D = 640
layers = nn.ModuleList(nn.TransformerEncoderLayer(D, 10, 2400, dropout=0.0, activation="gelu", batch_first=True, norm_first=True) for _ in range(3)).cuda().eval()
inputs = torch.randn(24, 250, D, device="cuda")
@torch.no_grad()
def quantise(linear, H, block=96, bits=4):
    W = linear.weight.data.clone()
    dead = H.diagonal() == 0
    H.diagonal().masked_fill_(dead, 1)
    H.diagonal().add_(0.01 * H.diagonal().mean())
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    Q = torch.zeros_like(W)
    scale = W.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    for a in range(0, W.shape[1], block):
        b = min(a + block, W.shape[1])
        part, errors = W[:, a:b].clone(), torch.zeros(W.shape[0], b - a, device="cuda")
        for i in range(b - a):
            column = part[:, i]
            q = (column / scale[:, 0]).round().clamp(-8, 7) * scale[:, 0]
            errors[:, i] = (column - q) / U[a + i, a + i]
            part[:, i:] -= errors[:, i:i + 1] @ U[a + i:a + i + 1, a + i:b]
            Q[:, a + i] = q
        W[:, b:] -= errors @ U[a:b, b:]
    linear.weight.data = Q
for layer in layers:
    named = {n: m for n, m in layer.named_modules() if isinstance(m, nn.Linear) and "self_attn" not in n}
    sums = {n: torch.zeros(m.in_features, m.in_features, device="cuda") for n, m in named.items()}
    def hook(name):
        def add(_, x, __):
            flat = x[0].reshape(-1, x[0].shape[-1]).float()
            sums[name].addmm_(flat.T, flat, alpha=2 / len(flat))
        return add
    handles = [m.register_forward_hook(hook(n)) for n, m in named.items()]
    with torch.no_grad():
        torch.backends.mha.set_fastpath_enabled(False)
        outs = torch.cat([layer(x) for x in inputs.split(8)])
    for h in handles:
        h.remove()
    for n, m in named.items():
        quantise(m, sums.pop(n))
    with torch.no_grad():
        print((torch.cat([layer(x) for x in inputs.split(8)]) - outs).square().mean().item())
    inputs = outs
