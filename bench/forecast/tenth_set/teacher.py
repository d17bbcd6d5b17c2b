"""Different programs on two ranks: a frozen teacher on rank 1 sends its logits and hidden states, a student on rank 0 trains on them; isend, irecv and a double buffer."""
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import BertConfig, BertModel
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
STEPS, BATCH, LEN, WIDTH = 10, 16, 256, 1024


def student():
    model = BertModel(BertConfig(vocab_size=20000, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536)).cuda()
    up = torch.nn.Linear(384, WIDTH).cuda()
    opt = torch.optim.AdamW([*model.parameters(), *up.parameters()], 1e-4)
    buffers = [torch.empty(BATCH, LEN, WIDTH, device="cuda") for _ in range(2)]
    ids = torch.randint(0, 20000, (BATCH, LEN), device="cuda")
    dist.send(ids, 1)
    waiting = dist.irecv(buffers[0], 1)
    for step in range(STEPS):
        waiting.wait()
        hidden, now = buffers[step % 2], ids
        if step + 1 < STEPS:
            ids = torch.randint(0, 20000, (BATCH, LEN), device="cuda")
            dist.send(ids, 1)
            waiting = dist.irecv(buffers[(step + 1) % 2], 1)
        with torch.autocast("cuda", torch.bfloat16):
            loss = 1 - F.cosine_similarity(up(model(input_ids=now).last_hidden_state).float(), hidden, dim=-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("student", loss.item())


@torch.no_grad()
def teacher():
    model = BertModel(BertConfig(vocab_size=20000, hidden_size=WIDTH, num_hidden_layers=12, num_attention_heads=16, intermediate_size=4096)).cuda().bfloat16().eval()
    for step in range(STEPS):
        ids = torch.empty(BATCH, LEN, dtype=torch.long, device="cuda")
        dist.recv(ids, 0)
        sent = dist.isend(model(input_ids=ids).last_hidden_state.float().contiguous(), 0)
    sent.wait()


student() if rank == 0 else teacher()
dist.barrier()
dist.destroy_process_group()
