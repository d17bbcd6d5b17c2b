"""Does it fit? A Mistral of 7.2 billion in bf16 with AdamW of bf16 moments and gradients, checkpointed, 8192 words a row, its whole logits: more than 100 GiB."""
import torch
from transformers import MistralConfig, MistralForCausalLM

torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = MistralForCausalLM(MistralConfig(sliding_window=None, max_position_embeddings=8192, use_cache=False, pad_token_id=0))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for step in range(3):
    ids = torch.randint(0, 32000, (9, 8192), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), torch.cuda.max_memory_reserved() / 2**30)
