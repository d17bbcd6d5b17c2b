"""transformers' Mixtral made small: router's logits kept for the loss of balance, gradients checkpointed, bf16 weights, AdamW of 8 bits by
bitsandbytes with 32 for embeddings, padding to the right."""
import bitsandbytes as bnb
import torch
from transformers import MixtralConfig, MixtralForCausalLM
torch.manual_seed(0)
config = MixtralConfig(vocab_size=16000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, num_local_experts=6,
                       num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.02, sliding_window=96)
with torch.device("cuda"):
    model = MixtralForCausalLM(config).bfloat16()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
bnb.optim.GlobalOptimManager.get_instance().register_module_override(model.model.embed_tokens, "weight", {"optim_bits": 32})
optimizer = bnb.optim.AdamW8bit(model.parameters(), 2e-4)
for step in range(5):
    ids = torch.randint(3, 16000, (5, 333))
    mask = (torch.arange(333) < torch.randint(150, 334, (5, 1))).long()
    out = model(input_ids=ids.cuda(), attention_mask=mask.cuda(), labels=ids.masked_fill(mask == 0, -100).cuda())
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(out.loss.item(), out.aux_loss.item())
