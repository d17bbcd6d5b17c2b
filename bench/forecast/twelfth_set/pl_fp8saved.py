"""Saved activations kept in 8 bits by saved_tensors_hooks and one autograd Function of its own, a residual MLP-mixer on patches, NAdam without foreach."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def pack(x):
    if x.dtype != torch.float32 or x.numel() < 1 << 18 or isinstance(x, nn.Parameter) or not x.is_contiguous():
        return x
    scale = x.abs().amax().clamp_min(1e-8) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def unpack(kept):
    return kept if torch.is_tensor(kept) else kept[0].float() * kept[1]


class SquaredReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = F.relu(x)
        ctx.save_for_backward(y)
        return y * y

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.t1, self.t2 = nn.Linear(tokens, 2 * tokens), nn.Linear(2 * tokens, tokens)
        self.c1, self.c2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.t2(SquaredReLU.apply(self.t1(self.a(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.c2(SquaredReLU.apply(self.c1(self.b(x))))


model = nn.Sequential(nn.Linear(768, 512), *[Mixer(196, 512) for _ in range(10)], nn.LayerNorm(512)).cuda()
head = nn.Linear(512, 1000).cuda()
optimizer = torch.optim.NAdam([*model.parameters(), *head.parameters()], lr=1e-3, foreach=False, decoupled_weight_decay=True, weight_decay=0.01)
for step in range(5):
    patches, labels = torch.randn(96, 196, 768, device="cuda"), torch.randint(0, 1000, (96,), device="cuda")
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = F.cross_entropy(head(model(patches).mean(1)), labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
