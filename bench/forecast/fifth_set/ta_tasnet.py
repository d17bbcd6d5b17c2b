"""torchaudio: Conv-TasNet separates two voices; the loss tries both orders."""
import torch
import torchaudio
torch.manual_seed(0)
model = torchaudio.models.ConvTasNet(num_sources=2, enc_num_feats=256, msk_num_feats=96, msk_num_hidden_feats=256, msk_num_layers=6, msk_num_stacks=2).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
def si_snr(a, b):
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    s = (a * b).sum(-1, keepdim=True) / (b.pow(2).sum(-1, keepdim=True) + 1e-8) * b
    return 10 * torch.log10(s.pow(2).sum(-1) / ((a - s).pow(2).sum(-1) + 1e-8) + 1e-8)
for step in range(5):
    voices = torch.randn(5, 2, 20000, device="cuda")
    out = model(voices.sum(1, keepdim=True))
    pairs = torch.stack([torch.stack([si_snr(out[:, i], voices[:, p[i]]) for i in range(2)]).mean(0) for p in ((0, 1), (1, 0))])
    loss = -pairs.max(0).values.mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimizer.step()
print(loss.item())
