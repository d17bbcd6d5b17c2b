"""GaLore by hand: gradients of matrices projected by svd_lowrank anew every second step, Adam's moments of what is left, a T5 of UMT5's kind, FP32 with TF32."""
import torch
from transformers import UMT5Config, UMT5ForConditionalGeneration

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = UMT5ForConditionalGeneration(UMT5Config(vocab_size=32000, d_model=768, d_kv=64, d_ff=2048, num_layers=8, num_decoder_layers=8, num_heads=12, decoder_start_token_id=0, pad_token_id=0)).cuda().train()
state, rank = {}, 64


@torch.no_grad()
def update(step):
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        g = p.grad
        low = g.ndim == 2 and min(g.shape) > 2 * rank and "shared" not in name and "lm_head" not in name
        s = state.setdefault(name, {})
        if low and (step % 2 == 0 or "p" not in s):
            u, _, v = torch.svd_lowrank(g, q=rank + 8, niter=2)
            s["p"] = (u if g.shape[0] <= g.shape[1] else v)[:, :rank].contiguous()
        if low:
            left = g.shape[0] <= g.shape[1]
            r = s["p"].T @ g if left else g @ s["p"]
        else:
            r = g
        if "m" not in s:
            s["m"], s["v"] = torch.zeros_like(r), torch.zeros_like(r)
        s["m"].lerp_(r, 0.1)
        s["v"].mul_(0.99).addcmul_(r, r, value=0.01)
        n = s["m"] / (s["v"].sqrt() + 1e-8)
        p.add_((s["p"] @ n if left else n @ s["p"].T) if low else n, alpha=-1e-4)
        p.grad = None


for step in range(4):
    ids, labels = torch.randint(1, 32000, (16, 256), device="cuda"), torch.randint(1, 32000, (16, 128), device="cuda")
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
    loss.backward()
    update(step)
print(loss.item())
