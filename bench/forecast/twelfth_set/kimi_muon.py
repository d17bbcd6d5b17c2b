"""Kimi Linear with delta attention and experts, torch.optim.Muon for matrices and AdamW for the rest, bf16 autocast, clipped by foreach."""
import torch
from transformers import KimiLinearConfig, KimiLinearForCausalLM

torch.manual_seed(0)
config = KimiLinearConfig(vocab_size=20000, hidden_size=768, intermediate_size=2048, moe_intermediate_size=384, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8, kv_lora_rank=128, qk_rope_head_dim=32, v_head_dim=64, qk_nope_head_dim=64,
                          num_experts_per_tok=4, num_local_experts=16, linear_head_dim=64, linear_num_heads=8, layer_types=["linear_attention", "linear_attention", "full_attention"] * 2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = KimiLinearForCausalLM(config).cuda().train()
matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
chosen = {id(p) for p in matrices}
optimizers = [torch.optim.Muon(matrices, lr=2e-3, weight_decay=0.1), torch.optim.AdamW([p for p in model.parameters() if id(p) not in chosen], lr=3e-4)]
for step in range(4):
    ids = torch.randint(3, 20000, (4, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
print(loss.item())
