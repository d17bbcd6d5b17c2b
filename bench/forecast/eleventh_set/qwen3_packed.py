"""Qwen 3, documents packed in one row with position_ids that begin anew, torch.compile, bf16 autocast, fused AdamW, a save and a load on the way."""
import os
import tempfile
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
config = Qwen3Config(vocab_size=32000, hidden_size=768, intermediate_size=2304, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True, use_cache=False)
model = Qwen3ForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True, betas=(0.9, 0.95))
compiled = torch.compile(model)
positions = torch.cat([torch.arange(n) for n in (700, 300, 548, 500)])[None].cuda()
for step in range(6):
    ids = torch.randint(0, 32000, (1, 2048), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(input_ids=ids, position_ids=positions, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step == 2:
        path = os.path.join(tempfile.mkdtemp(), "state.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
        saved = torch.load(path, map_location="cuda")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        del saved
print(loss.item())
