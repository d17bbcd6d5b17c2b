"""TimesFM 2.5 fitted to series of several lengths, bf16 autocast, schedule-free AdamW written by hand, a forecast with quantiles at the end."""
import torch
from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

torch.manual_seed(0)
model = TimesFm2_5ModelForPrediction(TimesFm2_5Config(context_length=2048, num_hidden_layers=10, hidden_size=640, intermediate_size=640, num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=2048)).cuda().train()


class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9, beta2=0.99):
        super().__init__(params, dict(lr=lr, beta=beta, beta2=beta2, k=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if p not in self.state:
                    self.state[p] = {"z": p.clone(), "v": torch.zeros_like(p)}
            grads, zs, vs = [p.grad for p in params], [self.state[p]["z"] for p in params], [self.state[p]["v"] for p in params]
            group["k"] += 1
            share = 1 / group["k"]
            torch._foreach_mul_(vs, group["beta2"])
            torch._foreach_addcmul_(vs, grads, grads, value=1 - group["beta2"])
            roots = torch._foreach_div(vs, 1 - group["beta2"] ** group["k"])
            torch._foreach_sqrt_(roots)
            torch._foreach_add_(roots, 1e-8)
            torch._foreach_div_(grads, roots)
            torch._foreach_lerp_(params, zs, share)
            torch._foreach_add_(params, grads, alpha=group["lr"] * (group["beta"] * (1 - share) - 1))
            torch._foreach_sub_(zs, torch._foreach_mul(grads, group["lr"]))


optimizer = ScheduleFree(model.parameters())
for step in range(5):
    past = [torch.randn(n, device="cuda").cumsum(0) for n in (2048, 1024, 1500, 512) * 12]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(past_values=past, future_values=torch.randn(48, 128, device="cuda")).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    print(loss.item(), model(past_values=past[:8]).full_predictions.shape)
