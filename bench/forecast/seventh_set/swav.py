"""SwAV: crops of two sizes, prototypes of unit length, Sinkhorn over a batch and a queue that begins late, LARS by hand, prototypes frozen at first,
ResNet-18, fp16."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
torch.manual_seed(0)
class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-6):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                if p.ndim > 1:
                    d = d.add(p, alpha=g["weight_decay"])
                    pn, dn = p.norm(), d.norm()
                    d = d * torch.where((pn > 0) & (dn > 0), 0.001 * pn / dn, 1.0)
                m = self.state[p].setdefault("mu", torch.zeros_like(p))
                m.mul_(g["momentum"]).add_(d)
                p.add_(m, alpha=-g["lr"])
eyes = torchvision.models.resnet18()
eyes.fc = nn.Sequential(nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.ReLU(inplace=True), nn.Linear(1024, 128))
proto = nn.Linear(128, 1500, bias=False)
model = nn.ModuleList([eyes, proto]).to("cuda", memory_format=torch.channels_last)
optimizer, scaler = LARS(model.parameters(), 0.6), torch.amp.GradScaler(init_scale=2.0 ** 12)
queue, B = torch.zeros(2, 512, 128, device="cuda"), 40
@torch.no_grad()
def sinkhorn(scores):
    q = torch.exp(scores / 0.05).t()
    q /= q.sum()
    for _ in range(3):
        q /= q.sum(1, keepdim=True) * q.shape[0]
        q /= q.sum(0, keepdim=True) * q.shape[1]
    return (q * q.shape[1]).t()
for step in range(6):
    with torch.no_grad():
        proto.weight.copy_(F.normalize(proto.weight, dim=1))
    crops = [torch.randn(2 * B, 3, 160, 160), torch.randn(4 * B, 3, 80, 80)]
    with torch.autocast("cuda"):
        z = F.normalize(torch.cat([eyes(c.cuda(non_blocking=True).to(memory_format=torch.channels_last)) for c in crops]), dim=1)
        out = proto(z)
    z, out, loss = z.detach().float(), out.float(), 0
    for i in range(2):
        with torch.no_grad():
            scores = out[i * B:(i + 1) * B].detach()
            if step >= 3:
                scores = torch.cat([queue[i] @ proto.weight.t(), scores])
            queue[i, B:] = queue[i, :-B].clone()
            queue[i, :B] = z[i * B:(i + 1) * B]
            q = sinkhorn(scores)[-B:]
        for v in [j for j in range(6) if j != i]:
            loss = loss - (q * F.log_softmax(out[v * B:(v + 1) * B] / 0.1, 1)).sum(1).mean() / 10
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if step < 2:
        proto.weight.grad = None
    scaler.step(optimizer)
    scaler.update()
print(loss.item())
