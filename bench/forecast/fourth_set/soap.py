"""SOAP by hand: Adam in the eigenbasis of the gradients' factors, eigenvectors refreshed by QR."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(512, 512), nn.GELU()))).cuda()
state = {}
def update(p, step):
    g = p.grad
    if g.ndim != 2:
        p.data.add_(g, alpha=-1e-3)
        return
    s = state.setdefault(p, {"left": g @ g.T, "right": g.T @ g, "m": torch.zeros_like(g), "v": torch.zeros_like(g)})
    s["left"].lerp_(g @ g.T, 0.05)
    s["right"].lerp_(g.T @ g, 0.05)
    if "ql" not in s:
        s["ql"], s["qr"] = torch.linalg.eigh(s["left"])[1], torch.linalg.eigh(s["right"])[1]
    elif step % 2 == 0:
        s["ql"], s["qr"] = torch.linalg.qr(s["left"] @ s["ql"])[0], torch.linalg.qr(s["right"] @ s["qr"])[0]
    turned = s["ql"].T @ g @ s["qr"]
    s["m"].lerp_(g, 0.1)
    s["v"].lerp_(turned.square(), 0.05)
    p.data.add_(s["ql"] @ ((s["ql"].T @ s["m"] @ s["qr"]) / (s["v"].sqrt() + 1e-8)) @ s["qr"].T, alpha=-1e-3)
for step in range(6):
    model(torch.randn(1024, 512, device="cuda")).pow(2).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            update(p, step)
            p.grad = None
