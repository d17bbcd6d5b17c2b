"""dots1, shared and routed experts behind a dense first layer, bf16 weights made on the card, fused AdamW, checkpointed; batches of one length."""
import torch
from transformers import Dots1Config, Dots1ForCausalLM

torch.manual_seed(0)
config = Dots1Config(vocab_size=32000, hidden_size=1024, intermediate_size=2816, moe_intermediate_size=512, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, head_dim=64, n_shared_experts=2, n_routed_experts=32, num_experts_per_tok=4, n_group=1, topk_group=1, first_k_dense_replace=1, max_position_embeddings=2048, sliding_window=None)
with torch.device("cuda"):
    model = Dots1ForCausalLM(config).bfloat16()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(6):
    x = torch.randint(0, 32000, (4, 1024), device="cuda")
    out = model(input_ids=x, labels=x, use_cache=False)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad()
    print(step, out.loss.detach().float().cpu())
