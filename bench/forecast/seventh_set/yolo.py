"""A YOLO without anchors: three scales, cells inside boxes assigned by the best ten, distances by distribution, generalised IoU, SGD in three groups,
EMA, fp16; then boxes suppressed."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
torch.manual_seed(0)
C = 20
def conv(i, o, k=3, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o, eps=1e-3, momentum=0.03), nn.SiLU(inplace=True))
class C2f(nn.Module):
    def __init__(self, i, o, n):
        super().__init__()
        self.inp, self.out = conv(i, o, 1), conv(o // 2 * (2 + n), o, 1)
        self.m = nn.ModuleList(nn.Sequential(conv(o // 2, o // 2), conv(o // 2, o // 2)) for _ in range(n))
    def forward(self, x):
        y = list(self.inp(x).chunk(2, 1))
        for m in self.m:
            y.append(y[-1] + m(y[-1]))
        return self.out(torch.cat(y, 1))
class Yolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 24, 3, 2), conv(24, 48, 3, 2), C2f(48, 48, 1))
        self.s1, self.s2, self.s3 = nn.Sequential(conv(48, 96, 3, 2), C2f(96, 96, 2)), nn.Sequential(conv(96, 192, 3, 2), C2f(192, 192, 2)), nn.Sequential(conv(192, 288, 3, 2), C2f(288, 288, 1))
        self.u1, self.u2 = C2f(288 + 192, 192, 1), C2f(192 + 96, 96, 1)
        self.heads = nn.ModuleList(nn.Sequential(conv(c, 96), nn.Conv2d(96, 64 + C, 1)) for c in (96, 192, 288))
    def forward(self, x):
        a = self.s1(self.stem(x))
        b = self.s2(a)
        c = self.s3(b)
        b = self.u1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u2(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return torch.cat([h(f).flatten(2) for h, f in zip(self.heads, (a, b, c))], 2).transpose(1, 2)
S = 320
grid = torch.cat([torch.stack([((torch.arange(n * n) % n) + 0.5) * s, (torch.div(torch.arange(n * n), n, rounding_mode="floor") + 0.5) * s, torch.full((n * n,), float(s))], 1) for s, n in ((8, 40), (16, 20), (32, 10))]).cuda()
def boxes_of(out):
    d = out[..., :64].unflatten(-1, (4, 16)).softmax(-1) @ torch.arange(16., device="cuda")
    d = d * grid[:, 2:3]
    return torch.cat([grid[:, :2] - d[..., :2], grid[:, :2] + d[..., 2:]], -1)
model = Yolo().to("cuda", memory_format=torch.channels_last)
ema = copy.deepcopy(model).eval()
norms, biases, weights = [], [], []
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        norms += [m.weight]
        biases += [m.bias]
    elif isinstance(m, nn.Conv2d):
        weights += [m.weight]
        biases += [] if m.bias is None else [m.bias]
optimizer = torch.optim.SGD([{"params": weights, "weight_decay": 5e-4}, {"params": norms}, {"params": biases}], 0.01, momentum=0.937, nesterov=True)
scaler = torch.amp.GradScaler()
for step in range(5):
    x = torch.rand(12, 3, S, S).cuda(non_blocking=True).to(memory_format=torch.channels_last)
    corner, size, kinds = torch.rand(12, 9, 2, device="cuda") * 220, torch.rand(12, 9, 2, device="cuda") * 90 + 8, torch.randint(0, C, (12, 9), device="cuda")
    truth = torch.cat([corner, corner + size], -1)
    with torch.autocast("cuda"):
        out = model(x)
    out = out.float()
    with torch.no_grad():
        inside = ((grid[:, None, :2] > truth[:, None, :, :2]) & (grid[:, None, :2] < truth[:, None, :, 2:])).all(-1)
        p = boxes_of(out)
        lt, rb = torch.max(p[:, :, None, :2], truth[:, None, :, :2]), torch.min(p[:, :, None, 2:], truth[:, None, :, 2:])
        inter = (rb - lt).clamp(0).prod(-1)
        iou = inter / ((p[..., 2:] - p[..., :2]).clamp(0).prod(-1)[:, :, None] + size.prod(-1)[:, None] - inter + 1e-7)
        score = torch.gather(out[..., 64:].sigmoid(), 2, kinds[:, None].expand(-1, len(grid), -1)).sqrt() * iou ** 6 * inside
        top = score.topk(10, 1).indices
        mask = torch.zeros_like(score).scatter_(1, top, 1.0).bool() & inside
        best = torch.where(mask, iou, -1.0).argmax(2)
        positive = mask.any(2)
        soft = F.one_hot(kinds.gather(1, best), C).float() * (iou.gather(2, best[..., None]) * positive[..., None])
        want = truth.gather(1, best[..., None].expand(-1, -1, 4))
    total = soft.sum().clamp(min=1)
    loss = F.binary_cross_entropy_with_logits(out[..., 64:], soft, reduction="sum") / total
    if positive.sum() > 0:
        loss = loss + 7.5 * torchvision.ops.complete_box_iou_loss(boxes_of(out)[positive], want[positive], reduction="sum") / total
        g = grid.expand(12, -1, -1)[positive]
        ltrb = (torch.cat([g[:, :2] - want[positive][:, :2], want[positive][:, 2:] - g[:, :2]], 1) / g[:, 2:3]).clamp(0, 14.9)
        low = ltrb.floor().long()
        logits = out[..., :64][positive].view(-1, 16)
        loss = loss + 1.5 * (F.cross_entropy(logits, low.flatten(), reduction="none") * (low + 1 - ltrb).flatten() + F.cross_entropy(logits, low.flatten() + 1, reduction="none") * (ltrb - low).flatten()).sum() / total / 4
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    with torch.no_grad():
        for a, b in zip(ema.state_dict().values(), model.state_dict().values()):
            if a.dtype.is_floating_point:
                a.mul_(0.99).add_(b, alpha=0.01)
with torch.no_grad(), torch.autocast("cuda"):
    out = ema(x).float()
    for o, b in zip(out, boxes_of(out)):
        s, k = o[:, 64:].sigmoid().max(1)
        s, order = s.topk(300)
        print(len(torchvision.ops.batched_nms(b[order], s, k[order], 0.6)))
