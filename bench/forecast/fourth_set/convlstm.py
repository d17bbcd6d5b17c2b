"""A convolutional LSTM foresees frames; time is unrolled by hand; bf16 by autocast."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Cell(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.gates = nn.Conv2d(a + b, 4 * b, 3, padding=1)
    def forward(self, x, h, c):
        i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.out = nn.ModuleList([Cell(1, 48), Cell(48, 48)]), nn.Conv2d(48, 1, 1)
    def forward(self, video, more):
        state = [(video.new_zeros(len(video), 48, 64, 64), video.new_zeros(len(video), 48, 64, 64)) for _ in self.cells]
        frames = []
        for t in range(video.shape[1] + more - 1):
            x = video[:, t] if t < video.shape[1] else frames[-1]
            for i, cell in enumerate(self.cells):
                state[i] = cell(x, *state[i])
                x = state[i][0]
            frames.append(self.out(x))
        return torch.stack(frames[-more:], 1)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(torch.rand(8, 8, 1, 64, 64, device="cuda"), 6), torch.rand(8, 6, 1, 64, 64, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
