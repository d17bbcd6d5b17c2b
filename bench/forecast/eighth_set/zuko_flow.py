"""zuko: a neural spline flow with a context, maximum likelihood, then a masked autoregressive one that samples, then a continuous one by its own solver."""
import torch
import zuko
torch.manual_seed(0)
for name, flow in {"nsf": zuko.flows.NSF(32, 16, transforms=5, hidden_features=[512] * 2), "maf": zuko.flows.MAF(32, 16, transforms=6, hidden_features=[512] * 3, randperm=True), "cnf": zuko.flows.CNF(32, 16, hidden_features=[256] * 2)}.items():
    flow = flow.cuda()
    optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-3)
    for step in range(5):
        x, c = torch.randn(4096, 32, device="cuda") * 2, torch.randn(4096, 16, device="cuda")
        loss = -flow(c).log_prob(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        print(name, flow(torch.randn(64, 16, device="cuda")).sample((8,)).shape)
