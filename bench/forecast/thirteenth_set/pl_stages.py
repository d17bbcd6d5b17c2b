"""A script with arguments and two stages: SimCLR with LARS by hand, a checkpoint, a second process that reads it for a linear probe and for nearest neighbours."""
import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

parser = argparse.ArgumentParser(description="SimCLR, then a probe")
parser.add_argument("--data", default="")
parser.add_argument("--out", default="")
parser.add_argument("--stage", choices=["pretrain", "probe"], default="pretrain")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--temperature", type=float, default=0.2)
args = parser.parse_args()
torch.manual_seed(0)


class Lars(torch.optim.Optimizer):
    def __init__(self, params, lr, decay=1e-6, momentum=0.9, trust=1e-3):
        super().__init__(params, dict(lr=lr, decay=decay, momentum=momentum, trust=trust))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if p.ndim > 1:
                    g = g.add(p, alpha=group["decay"])
                    size, change = p.norm(), g.norm()
                    g = g * torch.where((size > 0) & (change > 0), group["trust"] * size / change, torch.ones_like(size))
                kept = self.state[p].setdefault("momentum", torch.zeros_like(p))
                kept.mul_(group["momentum"]).add_(g)
                p.add_(kept, alpha=-group["lr"])


def view(x):
    shift = torch.randint(0, 12, (2,)).tolist()
    x = torch.roll(x, shift, (2, 3))
    x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    return x * (0.8 + 0.4 * torch.rand(len(x), 3, 1, 1, device=x.device))


def encoder():
    net = torchvision.models.resnet34(weights=None)
    net.conv1, net.maxpool, net.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Identity()
    return net


if args.stage == "pretrain":
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/pictures.pkl", "wb") as f:
            pickle.dump({"x": torch.randint(0, 256, (1024, 3, args.size, args.size), dtype=torch.uint8).numpy(), "y": torch.randint(0, 10, (1024,)).tolist()}, f)
        with open(f"{folder}/pictures.pkl", "rb") as f:
            pictures = torch.from_numpy(pickle.load(f)["x"])
        net, head = encoder().cuda(), nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
        optimizer = Lars([*net.parameters(), *head.parameters()], lr=0.3)
        for step in range(4):
            x = pictures[torch.randint(0, 1024, (args.batch,))].cuda(non_blocking=True).float() / 255
            with torch.autocast("cuda", dtype=torch.bfloat16):
                z = F.normalize(head(net(torch.cat([view(x), view(x)]))).float(), dim=1)
            scores = z @ z.T / args.temperature
            scores.fill_diagonal_(float("-inf"))
            loss = F.cross_entropy(scores, torch.arange(2 * args.batch, device="cuda").roll(args.batch))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/last.pt")
        print(loss.item())
        del net, head, optimizer, x, z, scores, loss
        torch.cuda.empty_cache()
        subprocess.run([sys.executable, os.path.abspath(__file__), "--stage", "probe", "--data", f"{folder}/pictures.pkl", "--out", f"{folder}/last.pt"], check=True)
else:
    with open(args.data, "rb") as f:
        data = pickle.load(f)
    pictures, labels = torch.from_numpy(data["x"]), torch.tensor(data["y"]).cuda()
    net = encoder()
    net.load_state_dict(torch.load(args.out, map_location="cpu")["net"])
    net = net.cuda().eval()
    with torch.no_grad():
        features = torch.cat([net(part.cuda().float() / 255) for part in pictures.split(100)])
    probe = nn.Linear(512, 10).cuda()
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(probe(features), labels)
        loss.backward()
        return loss

    print(optimizer.step(closure).item())
    near = (F.normalize(features) @ F.normalize(features).T).topk(20).indices
    print((labels[near].mode(1).values == labels).float().mean().item())
