"""PPO on words by hand: a GPT-2 with a head of values writes 32 words, a frozen copy for the KL penalty, advantages over words, two epochs of
minibatches, clipped values, whitened advantages."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
policy = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_positions=256, n_embd=512, n_layer=6, n_head=8, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, eos_token_id=7, bos_token_id=None, pad_token_id=0)).cuda()
reference, value = copy.deepcopy(policy).half().eval().requires_grad_(False), nn.Linear(512, 1).cuda()
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 1e-5)
Q, R = 40, 32
def logps(model, ids):
    with torch.autocast("cuda", torch.bfloat16):
        out = model(ids, output_hidden_states=True)
    logits = out.logits[:, Q - 1:-1].float() / 0.9
    return logits.log_softmax(-1).gather(2, ids[:, Q:, None])[..., 0], torch.distributions.Categorical(logits=logits).entropy(), out.hidden_states[-1][:, Q - 1:-1].float()
for update in range(2):
    query = torch.randint(8, 16000, (24, Q), device="cuda")
    policy.eval()
    with torch.no_grad():
        ids = policy.generate(query, attention_mask=torch.ones_like(query), max_new_tokens=R, min_new_tokens=R, do_sample=True, temperature=0.9, top_k=0)
        old, _, h = logps(policy, ids)
        v, ref = value(h)[..., 0], logps(reference, ids)[0]
        rewards = -0.05 * (old - ref)
        rewards[:, -1] += torch.randn(24, device="cuda")
        adv, last = [], 0
        for t in reversed(range(R)):
            last = rewards[:, t] + (v[:, t + 1] if t < R - 1 else 0) - v[:, t] + 0.95 * last
            adv.append(last)
        adv = torch.stack(adv[::-1], 1)
        returns = adv + v
        adv = (adv - adv.mean()) * torch.rsqrt(adv.var() + 1e-8)
    policy.train()
    for epoch in range(2):
        order = torch.randperm(24)
        for s in range(0, 24, 7):
            i = order[s:s + 7].cuda()
            new, entropy, h = logps(policy, ids[i])
            nv = value(h)[..., 0]
            ratio = (new - old[i]).exp()
            pg = torch.max(-adv[i] * ratio, -adv[i] * ratio.clamp(0.8, 1.2)).mean()
            vf = torch.max((nv - returns[i]) ** 2, (v[i] + (nv - v[i]).clamp(-0.2, 0.2) - returns[i]) ** 2).mean()
            loss = pg + 0.1 * vf - 0.001 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(loss.item(), (old - ref).sum(1).mean().item())
