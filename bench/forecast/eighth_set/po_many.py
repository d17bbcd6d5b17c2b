"""pytorch-optimizer: CAME, Kate, Adalite, schedule-free AdamW, Lookahead around Ranger, Lion, Adan, SM3, LaProp, StableAdamW, MARS, each a few steps of the same encoder."""
import torch
import pytorch_optimizer as po
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True, dropout=0.0)
for name, made in {"came": lambda p: po.CAME(p, lr=1e-3), "kate": lambda p: po.Kate(p, lr=1e-3), "adalite": lambda p: po.Adalite(p, lr=1e-3), "free": lambda p: po.ScheduleFreeAdamW(p, lr=1e-3),
                   "ranger": lambda p: po.Lookahead(po.Ranger(p, lr=1e-3), k=2), "lion": lambda p: po.Lion(p, lr=1e-4), "adan": lambda p: po.Adan(p, lr=1e-3, foreach=True), "sm3": lambda p: po.SM3(p, lr=1e-3), "laprop": lambda p: po.LaProp(p, lr=1e-3),
                   "stableadamw": lambda p: po.StableAdamW(p, lr=1e-3), "mars": lambda p: po.MARS(p, lr=1e-3)}.items():
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.nn.Linear(512, 1000)).cuda()
    optimizer = made(model.parameters())
    if name == "free": optimizer.train()
    for step in range(4):
        x, y = torch.randn(8, 128, 512, device="cuda"), torch.randint(0, 1000, (8 * 128,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    del model, optimizer
print(loss.item())
