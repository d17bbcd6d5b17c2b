"""AdaLoRA, which takes ranks away while it trains."""
import torch
from peft import AdaLoraConfig, get_peft_model
from transformers import OPTConfig, OPTForCausalLM
torch.manual_seed(0)
model = OPTForCausalLM(OPTConfig(vocab_size=8000, hidden_size=512, ffn_dim=2048, num_hidden_layers=6, num_attention_heads=8, word_embed_proj_dim=512)).cuda()
model = get_peft_model(model, AdaLoraConfig(init_r=12, target_r=4, tinit=1, tfinal=2, deltaT=1, total_step=8, target_modules=["q_proj", "v_proj"],
                                            task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(8):
    ids = torch.randint(3, 8000, (8, 256), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    model.base_model.update_and_allocate(step)
    optimizer.zero_grad()
