"""Neural style as the tutorial has it: VGG-19's features, Gram matrices, a picture as the parameter of L-BFGS, clamped in its closure; then the same by Adam, larger."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

torch.manual_seed(0)
cnn = torchvision.models.vgg19(weights=None).features.cuda().eval().requires_grad_(False)


class Content(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.mse_loss(x, self.target)
        return x


def gram(x):
    a, b, c, d = x.size()
    features = x.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class Style(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram(x), self.target)
        return x


def built(content, style):
    model, contents, styles, n = nn.Sequential(), [], [], 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            n += 1
        model.add_module(str(len(model)), nn.ReLU(inplace=False) if isinstance(layer, nn.ReLU) else layer)
        if isinstance(layer, nn.Conv2d):
            if n == 4:
                contents.append(Content(model(content)))
                model.add_module(f"content_{n}", contents[-1])
            if n <= 5:
                styles.append(Style(model(style)))
                model.add_module(f"style_{n}", styles[-1])
        if n == 5:
            return model, contents, styles


for size, kind in ((384, "lbfgs"), (640, "adam")):
    content, style = torch.rand(1, 3, size, size, device="cuda"), torch.rand(1, 3, size, size, device="cuda")
    picture = content.clone().requires_grad_(True)
    model, contents, styles = built(content, style)
    optimizer = torch.optim.LBFGS([picture]) if kind == "lbfgs" else torch.optim.Adam([picture], lr=0.02)
    turns = [0]

    def closure():
        with torch.no_grad():
            picture.clamp_(0, 1)
        optimizer.zero_grad()
        model(picture)
        loss = 1e6 * sum(s.loss for s in styles) + sum(c.loss for c in contents)
        loss.backward()
        turns[0] += 1
        return loss

    while turns[0] <= 40:
        optimizer.step(closure)
    print(kind, turns[0], picture.detach().mean().item())
