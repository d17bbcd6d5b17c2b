"""QLoRA: a saved Granite loaded in 4 bits with double quantization, prepared by peft, LoRA on all linear layers, 8-bit AdamW, checkpointed."""
import tempfile
import bitsandbytes as bnb
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GraniteConfig, GraniteForCausalLM

torch.manual_seed(0)
folder = tempfile.mkdtemp()
GraniteForCausalLM(GraniteConfig(vocab_size=16000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)).to(torch.bfloat16).save_pretrained(folder)
four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=four, device_map={"": 0})
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
optimizer = bnb.optim.AdamW8bit([p for p in model.parameters() if p.requires_grad], lr=2e-4)
model.train()
for step in range(6):
    ids = torch.randint(0, 16000, (4, 768), device="cuda")
    labels = ids.clone()
    labels[:, :256] = -100
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 0.3)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
