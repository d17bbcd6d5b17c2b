"""peft: LoRA with rank stabilisation on a GLM-4, two rates (LoRA+), bf16, embeddings trained, accelerate with accumulation, saved and read again, then merged."""
import tempfile
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from transformers import Glm4Config, Glm4ForCausalLM

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
base = Glm4ForCausalLM(Glm4Config(vocab_size=32000, hidden_size=1536, intermediate_size=5120, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=2, head_dim=128, pad_token_id=0, eos_token_id=2)).to(torch.bfloat16)
model = get_peft_model(base, LoraConfig(r=64, lora_alpha=16, use_rslora=True, lora_dropout=0.05, target_modules="all-linear", modules_to_save=["embed_tokens"]))
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
optimizer = create_loraplus_optimizer(model=model, optimizer_cls=torch.optim.AdamW, lr=1e-4, loraplus_lr_ratio=16)
data = torch.utils.data.DataLoader(torch.randint(3, 32000, (24, 1024)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for ids in data:
    with accelerator.accumulate(model):
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    accelerator.load_state(folder)
merged = accelerator.unwrap_model(model).merge_and_unload().eval()
with torch.no_grad():
    print(loss.item(), merged(input_ids=ids, logits_to_keep=1).logits.shape)
