"""peft: LoRA on the stacked weights of experts themselves (target_parameters) in an OLMoE, beside attention, bf16 weights, checkpointed, router's losses, fused AdamW."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import OlmoeConfig, OlmoeForCausalLM

torch.manual_seed(0)
config = OlmoeConfig(vocab_size=14000, hidden_size=512, intermediate_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8, num_experts=16, num_experts_per_tok=4, output_router_logits=True, pad_token_id=0, eos_token_id=1)
model = OlmoeForCausalLM(config).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], lora_dropout=0.0))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model.cuda().train()
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, fused=True)
for step in range(5):
    ids = torch.randint(1, 14000, (4, 448), device="cuda")
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
