"""The profiler with a schedule, memory's history with a snapshot, statistics asserted, memory_summary printed."""
import os
import tempfile
import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
torch.manual_seed(0)
folder = tempfile.mkdtemp()
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(420, 7, 1111, batch_first=True), 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
torch.cuda.memory._record_memory_history(max_entries=20000)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=1, warmup=1, active=2, repeat=1), profile_memory=True,
             on_trace_ready=lambda p: p.export_chrome_trace(os.path.join(folder, "trace.json"))) as p:
    for step in range(5):
        with record_function("forward"):
            loss = model(torch.randn(21, 190, 420, device="cuda")).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        p.step()
torch.cuda.memory._dump_snapshot(os.path.join(folder, "snapshot.pickle"))
torch.cuda.memory._record_memory_history(enabled=None)
before = torch.cuda.memory_allocated()
x = torch.empty(10_000_001, device="cuda")
assert torch.cuda.memory_allocated() - before == 40_000_512, torch.cuda.memory_allocated() - before
print(torch.cuda.memory_summary(abbreviated=True)[:300])
free, total = torch.cuda.mem_get_info()
assert total - free >= torch.cuda.memory_reserved()
print(os.listdir(folder), loss.item())
