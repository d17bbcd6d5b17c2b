"""torchvision: RAFT estimates motion between pictures, a weighted loss over all refinements, OneCycle, bf16 for features, gradients clipped, then a longer run."""
import torch
from torchvision.models.optical_flow import raft_small

torch.manual_seed(0)
model = raft_small().cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=1e-4, eps=1e-8)
rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-4, total_steps=20)
for step in range(3):
    a, b = torch.rand(2, 4, 3, 288, 384, device="cuda") * 2 - 1
    flow, valid = torch.randn(4, 2, 288, 384, device="cuda"), torch.rand(4, 288, 384, device="cuda") > 0.2
    flows = model(a, b, num_flow_updates=8)
    loss = sum(0.8 ** (len(flows) - i - 1) * (((f - flow).abs() * valid[:, None]).mean()) for i, f in enumerate(flows))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    rate.step()
model.eval()
with torch.no_grad():
    print(loss.item(), model(*torch.rand(2, 2, 3, 440, 1024, device="cuda"), num_flow_updates=16)[-1].shape)
