"""Plain: a text classifier that is saved with its optimizer, scaler and random state, loaded to the card by a second run of the same process, and goes on; an EMA swapped in for tests."""
import os
import tempfile
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

path = os.path.join(tempfile.mkdtemp(), "last.pt")


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40000, 512, padding_idx=0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True, norm_first=True, activation="gelu"), 8, enable_nested_tensor=False)
        self.head = nn.Linear(512, 20)

    def forward(self, x):
        pad = x == 0
        h = self.encoder(self.embed(x), src_key_padding_mask=pad)
        return self.head(h.masked_fill(pad[..., None], 0).sum(1) / (~pad).sum(1, keepdim=True))


def run(until):
    torch.manual_seed(0)
    model = Classifier().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, amsgrad=True)
    scaler = torch.amp.GradScaler("cuda")
    ema = {k: v.detach().clone() for k, v in model.state_dict().items()}
    begin = 0
    if os.path.exists(path):
        state = torch.load(path, map_location="cuda", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        ema, begin = state["ema"], state["step"]
    x = torch.randint(1, 40000, (640, 256))
    for i, n in enumerate(torch.randint(60, 256, (640,)).tolist()):
        x[i, n:] = 0
    loader = DataLoader(TensorDataset(x, torch.randint(0, 20, (640,))), batch_size=64, shuffle=True, pin_memory=True)
    for step, (x, y) in enumerate(loader, begin):
        if step == until:
            break
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        with torch.no_grad():
            for k, v in model.state_dict().items():
                ema[k].mul_(0.99).add_(v, alpha=0.01)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(), "ema": ema, "step": step}, path)
    kept = {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(ema)
    model.eval()
    with torch.no_grad():
        print(sum(int((model(x.cuda()).argmax(-1) == y.cuda()).sum()) for x, y in loader))
    model.load_state_dict(kept)


run(5)
run(9)
