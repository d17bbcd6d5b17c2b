"""BLT: a model of bytes whose patches end where another model is unsure, FP32, Adam with weights of the patcher frozen, two steps and a longer third."""
import torch
from transformers import BltConfig, BltForCausalLM

torch.manual_seed(0)
config = BltConfig(patching_mode="entropy", encoder_hash_byte_group_vocab=20000, encoder_hash_byte_group_size=[3, 4, 5], cross_attn_k=2,
                   encoder_config=dict(hidden_size=512, num_attention_heads=8, num_hidden_layers=1, intermediate_size=1408, hidden_size_global=1024), decoder_config=dict(hidden_size=512, num_attention_heads=8, num_hidden_layers=4, intermediate_size=1408, hidden_size_global=1024),
                   global_config=dict(hidden_size=1024, num_attention_heads=8, num_hidden_layers=6, intermediate_size=2816), patcher_config=dict(hidden_size=256, num_attention_heads=4, num_hidden_layers=2, intermediate_size=704))
model = BltForCausalLM(config).cuda().train()
for name, p in model.named_parameters():
    p.requires_grad_("patcher" not in name)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for length in (512, 512, 768):
    ids = torch.randint(4, 260, (4, length), device="cuda")
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
