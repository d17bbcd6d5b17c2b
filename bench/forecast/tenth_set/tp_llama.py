"""Tensor parallel by parallelize_module: Colwise, Rowwise, SequenceParallel and loss_parallel on a Llama written out, as in PyTorch's tutorial."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.dim = d // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))


class Feed(nn.Module):
    def __init__(self, d, f):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(d, f, bias=False), nn.Linear(f, d, bias=False), nn.Linear(d, f, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, d=1024, heads=16, f=2816):
        super().__init__()
        self.attention_norm, self.attention, self.ffn_norm, self.feed_forward = nn.RMSNorm(d), Attention(d, heads), nn.RMSNorm(d), Feed(d, f)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, vocab=16000, d=1024, layers=6):
        super().__init__()
        self.tok_embeddings, self.layers, self.norm, self.output = nn.Embedding(vocab, d), nn.ModuleList(Block(d) for _ in range(layers)), nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, i):
        x = self.tok_embeddings(i)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("tp",))
torch.manual_seed(0)
model = Llama().to("cuda", torch.bfloat16)
model = parallelize_module(model, mesh, {"tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
                                         "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
plan = {"attention_norm": SequenceParallel(), "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(), "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)), "feed_forward.w3": ColwiseParallel()}
for layer in model.layers:
    parallelize_module(layer, mesh, plan)
opt = torch.optim.AdamW(model.parameters(), 3e-4, foreach=True)
for step in range(5):
    torch.manual_seed(step)
    i = torch.randint(0, 16000, (4, 1025), device="cuda")
    with loss_parallel():
        loss = F.cross_entropy(model(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten())
        loss.backward()
    opt.step()
    opt.zero_grad()
print(rank, loss.to_local().item() if hasattr(loss, "to_local") else loss.item())
dist.destroy_process_group()
