"""Fine-tunes adapters (LoRA) over a frozen model: bf16 weights, or 4-bit weights (QLoRA), with a loop of its own."""
import argparse
import tempfile

import torch
from configs import config
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--rank", type=int, default=16)
p.add_argument("--four-bit", action="store_true")
p.add_argument("--eight-bit-adam", action="store_true")
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--dropout", type=float, default=0.0)
p.add_argument("--all-linear", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.bfloat16)
if a.four_bit:  # as from the hub: weights are quantised while they are read
    quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantised, device_map={"": 0}, dtype=torch.bfloat16)
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=a.checkpoint)
else:
    model.to("cuda")
    if a.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
targets = "all-linear" if a.all_linear else ["q_proj", "v_proj"]
model = get_peft_model(model, LoraConfig(r=a.rank, lora_alpha=2 * a.rank, lora_dropout=a.dropout, target_modules=targets, task_type="CAUSAL_LM"))
model.print_trainable_parameters()
model.train()
weights = [w for w in model.parameters() if w.requires_grad]
if a.eight_bit_adam:
    import bitsandbytes
    optimizer = bitsandbytes.optim.PagedAdamW8bit(weights, lr=2e-4)
else:
    optimizer = torch.optim.AdamW(weights, lr=2e-4)
for step in range(8):
    ids = torch.randint(model.config.vocab_size, (a.batch, a.len)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
