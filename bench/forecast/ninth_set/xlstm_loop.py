"""xLSTM: matrix memories in chunks, bf16 by autocast, AdamW with a cosine rate, then tokens one by one from its state."""
import torch
from transformers import xLSTMConfig, xLSTMForCausalLM

torch.manual_seed(0)
config = xLSTMConfig(vocab_size=16000, hidden_size=768, num_hidden_layers=8, num_heads=6, chunk_size=64, mode="train", return_last_states=True)
model = xLSTMForCausalLM(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for step in range(5):
    x = torch.randint(0, 16000, (8, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=x, labels=x, use_cache=False).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    schedule.step()
