"""The allocator gives memory back at a threshold and does not split large blocks; lengths vary."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.6,max_split_size_mb:128"
import torch
import torch.nn as nn
torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(0.03)
model = nn.Sequential(nn.Embedding(8000, 512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.Linear(512, 8000)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    ids = torch.randint(0, 8000, (8, 200 + 131 * (step * 7 % 10)), device="cuda")
    nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
