"""Zamba 2, state-space blocks with a shared attention block, by autocast in bf16, accumulated twice, AdamW with decayed and other weights; then it generates."""
import torch
from transformers import Zamba2Config, Zamba2ForCausalLM

torch.manual_seed(0)
config = Zamba2Config(vocab_size=16000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12, mamba_d_state=64, mamba_expand=2, mamba_ngroups=1, n_mamba_heads=12, intermediate_size=3072, num_mem_blocks=1, adapter_rank=64, chunk_size=128,
                      layers_block_type=["mamba", "mamba", "hybrid", "mamba", "mamba", "mamba"] * 2, hybrid_layer_ids=[2, 8], use_mem_rope=True)
model = Zamba2ForCausalLM(config).cuda()
decayed = [p for p in model.parameters() if p.ndim > 1]
other = [p for p in model.parameters() if p.ndim <= 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=3e-4, betas=(0.9, 0.95))
for step in range(4):
    for micro in range(2):
        x = torch.randint(0, 16000, (4, 512), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=x, labels=x, use_cache=False).loss / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
model.eval()
with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
    model.generate(x[:2, :64], max_new_tokens=24, min_new_tokens=24, do_sample=False)
