"""transformers' gpt-oss made small: sinks in attention, experts with clamped gates, checkpointed, AdamW in bf16 by foreach, z-loss."""
import torch
import torch.nn.functional as F
from transformers import GptOssConfig, GptOssForCausalLM
torch.manual_seed(0)
with torch.device("cuda"):
    model = GptOssForCausalLM(GptOssConfig(vocab_size=30000, hidden_size=480, intermediate_size=480, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
                                           num_local_experts=8, num_experts_per_tok=2, sliding_window=64)).bfloat16()
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True, weight_decay=0.05)
for step in range(4):
    ids = torch.randint(0, 30000, (2, 601), device="cuda")
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float()
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + 1e-4 * logits.logsumexp(-1).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
