"""Qwen 2 MoE with its routers' loss, FP32 weights by autocast in bf16, transformers' Adafactor without a rate of its own, an average of the loss logged."""
import torch
from transformers import Adafactor, Qwen2MoeConfig, Qwen2MoeForCausalLM
from transformers.optimization import AdafactorSchedule

torch.manual_seed(0)
config = Qwen2MoeConfig(vocab_size=32000, hidden_size=768, intermediate_size=2048, moe_intermediate_size=512, shared_expert_intermediate_size=1024, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4, num_experts=16, num_experts_per_tok=4, output_router_logits=True, router_aux_loss_coef=0.01)
model = Qwen2MoeForCausalLM(config).cuda()
optimizer = Adafactor(model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
schedule = AdafactorSchedule(optimizer)
for step in range(5):
    x = torch.randint(0, 32000, (4, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(input_ids=x, labels=x, use_cache=False)
    out.loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
