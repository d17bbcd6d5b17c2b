"""DoRA on a small Llama, checkpointed without re-entry."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=16000, hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12,
                                     num_key_value_heads=4)).to("cuda", torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.config.use_cache = False
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, use_dora=True, lora_dropout=0.05, target_modules="all-linear"))
model.enable_input_require_grads()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
