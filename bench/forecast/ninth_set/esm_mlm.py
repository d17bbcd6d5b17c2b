"""ESM learns proteins: rotary positions, masked residues, torch.compile, bf16 by autocast, fused Adam that is capturable."""
import torch
from transformers import EsmConfig, EsmForMaskedLM

torch.manual_seed(0)
config = EsmConfig(vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_size=640, num_hidden_layers=6, num_attention_heads=20, intermediate_size=2560, max_position_embeddings=1026, position_embedding_type="rotary", token_dropout=False, emb_layer_norm_before=False)
model = EsmForMaskedLM(config).cuda()
step_model = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=True)
for step in range(6):
    n = 1024
    ids = torch.randint(4, 30, (8, n), device="cuda")
    labels = torch.where(torch.rand(8, n, device="cuda") < 0.15, ids, -100)
    masked = torch.where(labels >= 0, 32, ids)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = step_model(input_ids=masked, attention_mask=torch.ones_like(ids), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
