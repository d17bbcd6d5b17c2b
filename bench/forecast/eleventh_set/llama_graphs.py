"""A Llama by torch.compile(mode="reduce-overhead"), bf16 autocast, capturable AdamW with a learning rate on the card, TF32 for the rest."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
config = LlamaConfig(vocab_size=16000, hidden_size=640, intermediate_size=1728, num_hidden_layers=5, num_attention_heads=10, num_key_value_heads=5, use_cache=False)
model = LlamaForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-4, device="cuda"), capturable=True)
step_fn = torch.compile(model, mode="reduce-overhead")
for step in range(8):
    ids = torch.randint(0, 16000, (8, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = step_fn(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    value = loss.item()
print(value)
