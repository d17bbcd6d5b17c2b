"""Trainer and peft: LoRA on all linear layers of Phi 3 in bf16, checkpointed, paged 8-bit AdamW; the adapter is saved, merged, and used."""
import tempfile
import torch
from peft import LoraConfig, get_peft_model
from transformers import Phi3Config, Phi3ForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    base = Phi3ForCausalLM(Phi3Config(vocab_size=32064, hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=4096))
torch.set_default_dtype(torch.float32)
base.config.use_cache = False
model = get_peft_model(base, LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
rows = [{"input_ids": (x := torch.randint(3, 32064, (1024,))), "labels": x} for _ in range(48)]
out = tempfile.mkdtemp()
args = TrainingArguments(output_dir=out, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=5, bf16=True, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, optim="paged_adamw_8bit",
                         learning_rate=2e-4, max_grad_norm=0.3, warmup_steps=1, report_to="none", logging_steps=1, save_strategy="no")
Trainer(model=model, args=args, train_dataset=rows).train()
model.save_pretrained(out + "/adapter")
merged = model.merge_and_unload().eval()
merged.config.use_cache = True
with torch.no_grad():
    print(merged.generate(rows[0]["input_ids"][None, :64].cuda(), max_new_tokens=32, min_new_tokens=32, do_sample=False).shape)
