"""The state is saved at each epoch, loaded into new objects on the card, and training goes on."""
import os
import tempfile
import torch
import torch.nn as nn
torch.manual_seed(0)
folder = tempfile.mkdtemp()
def make():
    model = nn.LSTM(256, 512, 2, batch_first=True, proj_size=0).cuda()
    head = nn.Linear(512, 3000).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    return model, head, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
model, head, optimizer, schedule = make()
for epoch in range(4):
    for step in range(3):
        y, _ = model(torch.randn(32, 100, 256, device="cuda"))
        loss = nn.functional.cross_entropy(head(y).flatten(0, 1), torch.randint(0, 3000, (3200,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step(loss.item())
    torch.save({"model": model.state_dict(), "head": head.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{folder}/last.pt")
    if epoch == 1:
        model, head, optimizer, schedule = make()
        saved = torch.load(f"{folder}/last.pt", map_location="cuda")
        model.load_state_dict(saved["model"])
        head.load_state_dict(saved["head"])
        optimizer.load_state_dict(saved["optimizer"])
