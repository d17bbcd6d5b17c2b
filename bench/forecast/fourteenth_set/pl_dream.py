"""Deep dream: activations of a GoogLeNet caught by hooks are made larger by gradients of the picture, octave by octave, shifted and smoothed, tiles for the largest."""
import torch
import torch.nn.functional as F
import torchvision

torch.manual_seed(0)
net = torchvision.models.googlenet(weights=None, init_weights=False, aux_logits=False).cuda().eval()
kept = {}
for name in ("inception4c", "inception4d"):
    getattr(net, name).register_forward_hook(lambda module, args, out, name=name: kept.__setitem__(name, out))
picture = torch.rand(1, 3, 700, 900, device="cuda")
sizes = [(int(700 * 1.4 ** -k), int(900 * 1.4 ** -k)) for k in range(4)][::-1]
detail = torch.zeros(1, 3, *sizes[0], device="cuda")
blur = torchvision.transforms.GaussianBlur(9, sigma=1.0)
for size in sizes:
    base = F.interpolate(picture, size, mode="bilinear", align_corners=False)
    dream = (base + F.interpolate(detail, size, mode="bilinear", align_corners=False)).requires_grad_(True)
    for step in range(8):
        dy, dx = torch.randint(-32, 33, (2,)).tolist()
        moved = torch.roll(dream, (dy, dx), (2, 3))
        grad = torch.zeros_like(dream)
        tiles = [(0, size[0])] if size[0] < 500 else [(0, size[0] // 2), (size[0] // 2, size[0])]
        for top, bottom in tiles:
            net(moved[:, :, top:bottom])
            loss = sum(a.pow(2).mean() for a in kept.values())
            grad += torch.autograd.grad(loss, dream, retain_graph=len(tiles) > 1)[0]
        grad = blur(grad)
        with torch.no_grad():
            dream += 0.02 * grad / grad.abs().mean().clamp(min=1e-8)
            dream.clamp_(0, 1)
    detail = (dream - base).detach()
    print(size, loss.item())
