"""A whole training step in one CUDA graph, captured by hand: static inputs, a capturable Adam, gradients kept; then the evaluation in another graph."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(700, 1900), nn.ReLU(), nn.Dropout(0.2), nn.Linear(1900, 1900), nn.ReLU(), nn.Linear(1900, 51)).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
x, y = torch.randn(640, 700, device="cuda"), torch.randint(0, 51, (640,), device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        criterion(model(x), y).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
for _ in range(20):
    x.copy_(torch.randn(640, 700))
    y.copy_(torch.randint(0, 51, (640,)))
    graph.replay()
print(loss.item())
model.eval()
evaluate = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(evaluate, pool=graph.pool()):
    right = (model(x).argmax(1) == y).float().mean()
evaluate.replay()
print(right.item())
