"""LFM2 with experts, bf16 weights, Lion written by hand over each parameter, a cosine schedule."""
import torch
from transformers import Lfm2MoeConfig, Lfm2MoeForCausalLM, get_cosine_schedule_with_warmup


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((state["m"] * b1 + p.grad * (1 - b1)).sign_(), alpha=-group["lr"])
                state["m"].lerp_(p.grad, 1 - b2)


torch.manual_seed(0)
config = Lfm2MoeConfig(vocab_size=16000, hidden_size=768, intermediate_size=2048, moe_intermediate_size=512, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, num_experts=16, num_experts_per_tok=4, num_dense_layers=2,
                       layer_types=["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "full_attention"])
model = Lfm2MoeForCausalLM(config).to("cuda", torch.bfloat16).train()
optimizer = Lion(model.parameters())
schedule = get_cosine_schedule_with_warmup(optimizer, 2, 8)
for step in range(6):
    ids = torch.randint(0, 16000, (4, 1024), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(loss.item(), torch.cuda.max_memory_allocated())
