"""QLoRA by Trainer: a small Phi saved and loaded in nf4 with double quantisation, LoRA with rsLoRA on attention alone, checkpointed, paged AdamW in
32 bits, fp16."""
import tempfile
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PhiConfig, PhiForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
folder = tempfile.mkdtemp()
PhiForCausalLM(PhiConfig(vocab_size=25600, hidden_size=768, intermediate_size=3072, num_hidden_layers=6, num_attention_heads=12, eos_token_id=None, bos_token_id=None)).bfloat16().save_pretrained(folder)
config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float16)
model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, device_map={"": 0}, dtype=torch.float16)
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=12, lora_alpha=24, use_rslora=True, target_modules=["q_proj", "k_proj", "v_proj", "dense"], lora_dropout=0.1, task_type="CAUSAL_LM"))
rows = [{"input_ids": (x := torch.randint(2, 25600, (457,))), "labels": x} for _ in range(40)]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=5, optim="paged_adamw_32bit", fp16=True, learning_rate=1e-4, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=1)
Trainer(model=model, args=args, train_dataset=rows).train()
