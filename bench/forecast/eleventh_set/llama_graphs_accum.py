"""A Llama by torch.compile(mode="reduce-overhead") that accumulates over two batches: its second backward adds to gradients that the graph has overwritten, and PyTorch stops it."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
config = LlamaConfig(vocab_size=16000, hidden_size=640, intermediate_size=1728, num_hidden_layers=5, num_attention_heads=10, num_key_value_heads=5, use_cache=False)
model = LlamaForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-4, device="cuda"), capturable=True)
step_fn = torch.compile(model, mode="reduce-overhead")
for step in range(8):
    for part in range(2):
        ids = torch.randint(0, 16000, (4, 512), device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_fn(input_ids=ids, labels=ids).loss / 2
        loss.backward()
        value = loss.item()
    optimizer.step()
    optimizer.zero_grad()
print(value)
