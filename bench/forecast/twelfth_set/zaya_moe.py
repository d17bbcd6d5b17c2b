"""Zaya: compressed attention by convolutions and experts chosen one a word, bf16 weights with FP32 masters by hand, SGD-like Lion without foreach, two batches."""
import torch
from transformers import ZayaConfig, ZayaForCausalLM

torch.manual_seed(0)
config = ZayaConfig(vocab_size=20000, hidden_size=768, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, moe_intermediate_size=1024, num_experts=8, router_hidden_size=128, head_dim=96)
model = ZayaForCausalLM(config).to("cuda", torch.bfloat16).train()
params = [p for p in model.parameters() if p.requires_grad]
masters = [p.detach().float().clone() for p in params]
momenta = [torch.zeros_like(m) for m in masters]
for step in range(4):
    for part in range(2):
        ids = torch.randint(3, 20000, (4, 512), device="cuda")
        (model(input_ids=ids, labels=ids, use_cache=False).loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)
    with torch.no_grad():
        for p, m, v in zip(params, masters, momenta):
            if p.grad is None:
                continue
            g = p.grad.float()
            m.mul_(1 - 1e-5).add_((0.9 * v + 0.1 * g).sign(), alpha=-1e-4)
            v.lerp_(g, 0.01)
            p.copy_(m)
            p.grad = None
print(step)
