"""DiLoCo by hand: each rank trains on its own with AdamW; every fourth step the differences are averaged and an outer SGD with Nesterov takes them; the anchor is kept on the host."""
import os
import torch
import torch.distributed as dist
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=12000, hidden_size=768, intermediate_size=3072, num_hidden_layers=6, num_attention_heads=12)).cuda()
anchor = [p.detach().cpu().pin_memory() for p in model.parameters()]
outer_params = [torch.nn.Parameter(a.cuda()) for a in anchor]
outer = torch.optim.SGD(outer_params, 0.7, momentum=0.9, nesterov=True)
inner = torch.optim.AdamW(model.parameters(), 4e-4, weight_decay=0.1)
torch.manual_seed(rank)
for step in range(12):
    ids = torch.randint(0, 12000, (6, 384), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    inner.step()
    inner.zero_grad()
    if step % 4 == 3:
        for a, o, p in zip(anchor, outer_params, model.parameters()):
            o.grad = a.cuda(non_blocking=True) - p.detach()
            dist.all_reduce(o.grad, op=dist.ReduceOp.AVG)
        outer.step()
        outer.zero_grad()
        with torch.no_grad():
            for a, o, p in zip(anchor, outer_params, model.parameters()):
                p.copy_(o)
                a.copy_(o, non_blocking=True)
        torch.cuda.synchronize()
        if rank == 0:
            print(step, loss.item())
dist.destroy_process_group()
