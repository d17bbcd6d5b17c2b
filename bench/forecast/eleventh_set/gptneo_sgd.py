"""GPT-Neo with local and global layers, FP32, eager attention, SGD with Nesterov momentum, two batches a step, prompts left out of the loss."""
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

torch.manual_seed(0)
config = GPTNeoConfig(vocab_size=20000, hidden_size=640, num_layers=8, num_heads=10, attention_types=[[["global", "local"], 4]], window_size=128, max_position_embeddings=1024, attn_implementation="eager")
model = GPTNeoForCausalLM(config).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-4)
for step in range(5):
    for part in range(2):
        ids = torch.randint(0, 20000, (4, 768), device="cuda")
        labels = ids.clone()
        labels[:, :200] = -100
        (model(input_ids=ids, labels=labels).loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
print(torch.cuda.max_memory_allocated())
