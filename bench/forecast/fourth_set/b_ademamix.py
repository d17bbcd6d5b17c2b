"""bitsandbytes: AdEMAMix in 8 bits, embeddings kept in 32."""
import bitsandbytes as bnb
import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_embd=768, n_layer=8, n_head=12)).cuda()
for module in model.modules():
    if isinstance(module, torch.nn.Embedding):
        bnb.optim.GlobalOptimManager.get_instance().register_module_override(module, "weight", {"optim_bits": 32})
optimizer = bnb.optim.AdEMAMix8bit(model.parameters(), lr=1e-4, t_alpha=100, t_beta3=100)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
