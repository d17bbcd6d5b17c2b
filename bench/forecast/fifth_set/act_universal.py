"""A universal transformer with adaptive computation time: a layer is used again until every place has halted, six times at most."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self, d=320, words=7001):
        super().__init__()
        self.embed, self.halt, self.head = nn.Embedding(words, d), nn.Linear(d, 1), nn.Linear(d, words)
        self.layer = nn.TransformerEncoderLayer(d, 8, 1280, 0.1, batch_first=True)
    def forward(self, ids):
        x = self.embed(ids)
        halted, remain, out, steps = torch.zeros(ids.shape, device=ids.device), torch.zeros(ids.shape, device=ids.device), torch.zeros_like(x), 0
        while ((halted < 0.99) & (torch.full_like(halted, steps) < 6)).any():
            p = torch.sigmoid(self.halt(x)).squeeze(-1)
            running = (halted < 0.99).float()
            new = (halted + p * running > 0.99).float() * running
            going = (halted + p * running <= 0.99).float() * running
            halted = halted + p * going
            remain = remain + new * (1 - halted)
            halted = halted + new * remain
            x = self.layer(x)
            w = (p * going + new * remain).unsqueeze(-1)
            out = x * w + out * (1 - w)
            steps += 1
        return self.head(out), steps
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for step in range(4):
    ids = torch.randint(0, 7001, (15, 120), device="cuda")
    logits, n = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n, loss.item())
