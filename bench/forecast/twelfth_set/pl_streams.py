"""Layers on the host that come to the card one ahead on a stream of their own, record_stream, gradients that go back on a third, Adam on the CPU, pinned."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, L = 2048, 16
host = [{k: torch.randn(s).mul_(0.02).pin_memory() for k, s in (("up", (4 * D, D)), ("down", (D, 4 * D)))} for _ in range(L)]
ahead, back, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
grads = [{k: torch.empty_like(v).pin_memory() for k, v in layer.items()} for layer in host]
state = [{k: torch.zeros_like(v) for k, v in layer.items()} for layer in host]


def brought(i):
    with torch.cuda.stream(ahead):
        layer = {k: v.to("cuda", torch.bfloat16, non_blocking=True) for k, v in host[i].items()}
        came = torch.cuda.Event()
        came.record()
    return layer, came


def forward(x, layer):
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (D,)), layer["up"])), layer["down"])


for step in range(3):
    x = torch.randn(16, 512, D, device="cuda", dtype=torch.bfloat16)
    kept, coming = [], brought(0)
    with torch.no_grad():
        for i in range(L):
            layer, came = coming
            coming = brought(i + 1) if i + 1 < L else None
            main.wait_event(came)
            kept.append(x)
            x = forward(x, layer)
            for v in layer.values():
                v.record_stream(main)
    grad = 2 * x / x.numel()
    coming = brought(L - 1)
    for i in reversed(range(L)):
        layer, came = coming
        coming = brought(i - 1) if i else None
        main.wait_event(came)
        x = kept.pop().requires_grad_()
        layer = {k: v.requires_grad_() for k, v in layer.items()}
        grad, *more = torch.autograd.grad(forward(x, layer), [x, *layer.values()], grad)
        back.wait_stream(main)
        with torch.cuda.stream(back):
            for k, g in zip(layer, more):
                grads[i][k].copy_(g, non_blocking=True)
                g.record_stream(back)
        for v in layer.values():
            v.record_stream(main)
    back.synchronize()
    for layer, gs, vs in zip(host, grads, state):
        for k in layer:
            vs[k].mul_(0.9).add_(gs[k])
            layer[k].sub_(vs[k], alpha=1e-3)
print(grad.shape)
