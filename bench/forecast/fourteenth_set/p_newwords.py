"""peft: new words are added to a Phi 3, its embeddings and head trained whole beside LoRA, bf16, saved, read into a fresh base and merged, two batches a step."""
import tempfile
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Phi3Config, Phi3ForCausalLM, get_cosine_schedule_with_warmup

torch.manual_seed(0)
config = Phi3Config(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16, pad_token_id=0, max_position_embeddings=2048)
base = Phi3ForCausalLM(config).to(torch.bfloat16)
base.resize_token_embeddings(16120, pad_to_multiple_of=64)
model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["qkv_proj", "o_proj", "gate_up_proj"], modules_to_save=["embed_tokens", "lm_head"], task_type="CAUSAL_LM")).cuda()
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
schedule = get_cosine_schedule_with_warmup(optimizer, 2, 8)
for step in range(5):
    for part in range(2):
        ids = torch.randint(1, 16120, (4, 512), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(loss.item())
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
del model, base, optimizer, schedule, loss
fresh = Phi3ForCausalLM(config).to(torch.bfloat16)
fresh.resize_token_embeddings(16120, pad_to_multiple_of=64)
merged = PeftModel.from_pretrained(fresh, folder).cuda().merge_and_unload().eval()
print(merged.generate(torch.randint(1, 16120, (6, 64), device="cuda"), max_new_tokens=16, min_new_tokens=16, do_sample=True, top_p=0.9).shape)
