"""Two LoRA adapters of one model, trained in turns and then joined."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
torch.manual_seed(0)
base = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=10000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)).cuda()
config = LoraConfig(r=8, target_modules=["query_key_value"])
model = get_peft_model(base, config, adapter_name="first")
model.add_adapter("second", config)
model.cuda()
optimizers = {}
for step in range(6):
    name = "first" if step % 2 == 0 else "second"
    model.set_adapter(name)
    if name not in optimizers:
        optimizers[name] = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    ids = torch.randint(0, 10000, (6, 384), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizers[name].step()
    optimizers[name].zero_grad()
model.add_weighted_adapter(["first", "second"], [0.5, 0.5], "both", combination_type="linear")
model.set_adapter("both")
with torch.no_grad():
    model(input_ids=torch.randint(0, 10000, (6, 384), device="cuda"))
