"""GRPO by hand: a Llama of transformers samples groups with its cache, rewards by rule, advantages in groups, a frozen reference, clipped ratios."""
import copy
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=9001, hidden_size=448, intermediate_size=1200, num_hidden_layers=6, num_attention_heads=7, num_key_value_heads=7, eos_token_id=2, pad_token_id=0)
model = LlamaForCausalLM(config).cuda().bfloat16()
reference = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), 1e-6)
def logs(m, ids, start):
    logits = m(ids).logits[:, start - 1:-1]
    return torch.log_softmax(logits.float(), -1).gather(-1, ids[:, start:, None]).squeeze(-1)
for step in range(3):
    prompts = torch.randint(3, 9001, (4, 61), device="cuda").repeat_interleave(6, 0)
    model.eval()
    with torch.no_grad():
        ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=90, do_sample=True, temperature=1.0, top_k=0, min_new_tokens=90)
    model.train()
    answers = ids[:, 61:]
    rewards = (answers % 7 == 0).float().mean(1) + 0.1 * (answers == 2).any(1)
    groups = rewards.view(4, 6)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    with torch.no_grad():
        old, fixed = logs(model, ids, 61), logs(reference, ids, 61)
    for epoch in range(2):
        for rows in torch.arange(24, device="cuda").split(8):
            new = logs(model, ids[rows], 61)
            ratio = (new - old[rows]).exp()
            a = advantages[rows, None]
            gap = fixed[rows] - new
            loss = (-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a) + 0.04 * (gap.exp() - gap - 1)).mean()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(step, loss.item(), rewards.mean().item())
