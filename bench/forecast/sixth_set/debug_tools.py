"""Tools around training: detect_anomaly, FlopCounterMode, the profiler with memory and stacks, nvtx ranges, hooks that look for NaN, a histogram of gradients."""
import warnings
import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.flop_counter import FlopCounterMode
torch.manual_seed(0)
warnings.simplefilter("ignore")
model = nn.Sequential(nn.Conv1d(40, 300, 11, 3), nn.SiLU(), nn.Conv1d(300, 500, 5, 2), nn.SiLU(), nn.Flatten(1, 1)).cuda()
mixer, head = nn.LSTM(500, 410, 2, batch_first=True, dropout=0.2).cuda(), nn.Linear(410, 3011).cuda()
everything = [*model.parameters(), *mixer.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(everything, 1e-3)
bad = []
for m in (*model, mixer, head):
    m.register_forward_hook(lambda m, i, o: bad.append(type(m).__name__) if not torch.isfinite(o[0] if isinstance(o, tuple) else o).all() else None)
def step():
    x, y = torch.randn(26, 40, 1300, device="cuda"), torch.randint(0, 3011, (26,), device="cuda")
    torch.cuda.nvtx.range_push("forward")
    with record_function("forward"):
        h, _ = mixer(model(x).transpose(1, 2))
        loss = nn.functional.cross_entropy(head(h).transpose(1, 2), y[:, None].expand(-1, h.shape[1]))
    torch.cuda.nvtx.range_pop()
    loss.backward()
    counts = torch.cat([p.grad.flatten() for p in everything]).float().histc(50, -1e-3, 1e-3)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), counts.max().item()
with torch.autograd.detect_anomaly():
    print(step())
with FlopCounterMode(display=False) as flops:
    print(step())
print(flops.get_total_flops())
torch.cuda.set_sync_debug_mode("warn")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=1, warmup=1, active=2), profile_memory=True, record_shapes=True, with_stack=True) as p:
    for _ in range(4):
        step()
        p.step()
torch.cuda.set_sync_debug_mode("default")
print(len(p.key_averages(group_by_input_shape=True)), bad)
