"""HRM for text: two stacks that take turns for eight cycles, instructions that see each other, Lion of timm's kind by hand with foreach, then generation."""
import torch
from transformers import HrmTextConfig, HrmTextForCausalLM

torch.manual_seed(0)
config = HrmTextConfig(vocab_size=16000, hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=6, head_dim=128, H_cycles=2, L_cycles=3, L_bp_cycles=[2, 3], pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = HrmTextForCausalLM(config).to("cuda", torch.bfloat16).train()
parameters = list(model.parameters())
momentum = [torch.zeros_like(p) for p in parameters]
for step in range(4):
    ids = torch.randint(3, 16000, (4, 384), device="cuda")
    kinds = (torch.arange(384, device="cuda") < 100).long().expand(4, -1)
    labels = ids.masked_fill(kinds == 1, -100)
    loss = model(input_ids=ids, token_type_ids=kinds, labels=labels, use_cache=False).loss
    loss.backward()
    with torch.no_grad():
        used = [i for i, p in enumerate(parameters) if p.grad is not None]
        grads, some, kept = [parameters[i].grad for i in used], [parameters[i] for i in used], [momentum[i] for i in used]
        way = torch._foreach_mul(kept, 0.9)
        torch._foreach_add_(way, grads, alpha=0.1)
        way = torch._foreach_sign(way)
        torch._foreach_mul_(some, 1 - 1e-5)
        torch._foreach_add_(some, way, alpha=-1e-4)
        torch._foreach_mul_(kept, 0.99)
        torch._foreach_add_(kept, grads, alpha=0.01)
    del grads, way, some, kept
    model.zero_grad(set_to_none=True)
print(loss.item())
model.eval()
ids = torch.randint(3, 16000, (8, 64), device="cuda")
print(model.generate(ids, token_type_ids=torch.ones_like(ids), max_new_tokens=24, min_new_tokens=24, do_sample=True, top_p=0.9).shape)
