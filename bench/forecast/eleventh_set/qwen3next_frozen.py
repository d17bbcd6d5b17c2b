"""Qwen 3 Next, linear and full attention with experts, bf16 weights; embeddings and the lower half frozen, capturable AdamW, an evaluation between."""
import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

torch.manual_seed(0)
config = Qwen3NextConfig(vocab_size=24000, hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=2, head_dim=64, linear_num_key_heads=8, linear_num_value_heads=16, linear_key_head_dim=64,
                         linear_value_head_dim=64, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=256, shared_expert_intermediate_size=256, output_router_logits=True)
model = Qwen3NextForCausalLM(config).to("cuda", torch.bfloat16)
model.model.embed_tokens.requires_grad_(False)
for layer in model.model.layers[:4]:
    layer.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, capturable=True)
for step in range(5):
    model.train()
    ids = torch.randint(0, 24000, (4, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 1:
        model.eval()
        with torch.inference_mode():
            ids = torch.randint(0, 24000, (8, 512), device="cuda")
            print(step, loss.item(), model(input_ids=ids, labels=ids).loss.item())
