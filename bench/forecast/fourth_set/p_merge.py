"""LoRA with rsLoRA scaling, merged after training, then a few words generated."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=12000, hidden_size=640, intermediate_size=1728, num_hidden_layers=8, num_attention_heads=10,
                                     num_key_value_heads=2)).to("cuda", torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=32, use_rslora=True, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], modules_to_save=["lm_head"]))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
for step in range(4):
    ids = torch.randint(0, 12000, (4, 512), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
del optimizer
model = model.merge_and_unload().eval()
torch.cuda.empty_cache()
ids = torch.randint(0, 12000, (8, 128), device="cuda")
model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, min_new_tokens=24, do_sample=True, top_p=0.9, pad_token_id=0)
