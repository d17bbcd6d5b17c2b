"""A small Llama whose layers keep what is saved in pinned memory of the host (save_on_cpu), a head in chunks that are checkpointed, bf16 by autocast,
averaged weights with swa_utils."""
import torch
import torch.nn.functional as F
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaModel
torch.manual_seed(0)
model = LlamaModel(LlamaConfig(vocab_size=24000, hidden_size=640, intermediate_size=1728, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2)).cuda()
averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
def piece(x, y):
    return F.cross_entropy((x @ model.embed_tokens.weight.to(x.dtype).t()).float().flatten(0, 1), y.flatten(), reduction="sum")
for step in range(4):
    ids = torch.randint(0, 24000, (4, 769), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        with save_on_cpu(pin_memory=True):
            x = model(input_ids=ids[:, :-1]).last_hidden_state
        loss = sum(checkpoint(piece, x[:, c:c + 256], ids[:, 1 + c:257 + c], use_reentrant=False) for c in range(0, 768, 256)) / ids[:, 1:].numel()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    averaged.update_parameters(model)
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    print(loss.item(), averaged(input_ids=ids).last_hidden_state.shape)
