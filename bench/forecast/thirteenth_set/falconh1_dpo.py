"""Falcon H1 (attention beside a state space): DPO by hand with the reference's numbers found first, pairs padded on the left, AdamW, tf32."""
import torch
import torch.nn.functional as F
from transformers import FalconH1Config, FalconH1ForCausalLM

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
config = FalconH1Config(vocab_size=12000, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2, mamba_d_ssm=768, mamba_n_heads=24, mamba_d_head=32, mamba_d_state=64, mamba_chunk_size=64)
model = FalconH1ForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)


def pairs():
    for lengths in ([300, 260], [410, 380], [350, 200]):
        ids, mask = torch.zeros(4, max(lengths), dtype=torch.long), torch.zeros(4, max(lengths), dtype=torch.long)
        for row, n in enumerate([*lengths, *[n - 40 for n in lengths]]):
            ids[row, -n:], mask[row, -n:] = torch.randint(3, 12000, (n,)), 1
        yield ids.cuda(), mask.cuda()


def log_probs(ids, mask):
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    words = logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return (words * mask[:, 1:]).sum(1)


data = list(pairs())
with torch.no_grad():
    reference = [log_probs(*batch) for batch in data]
for epoch in range(2):
    for (ids, mask), before in zip(data, reference):
        gain = 0.1 * (log_probs(ids, mask) - before)
        good, bad = gain.chunk(2)
        loss = -F.logsigmoid(good - bad).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
print(loss.item(), (good > bad).float().mean().item(), norm.item())
