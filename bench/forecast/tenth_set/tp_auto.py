"""transformers' tp_plan="auto": a Llama is saved by rank 0, loaded over two cards, generates, and takes a few training steps."""
import os
import tempfile
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
if rank == 0:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8, dtype="bfloat16")).to(torch.bfloat16).save_pretrained(folder[0])
dist.barrier()
model = AutoModelForCausalLM.from_pretrained(folder[0], tp_plan="auto", dtype=torch.bfloat16)
torch.manual_seed(1)
ids = torch.randint(0, 16000, (4, 256), device="cuda")
out = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
print(rank, out.shape)
model.train()
opt = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
for step in range(3):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
