"""OLMo 2, each block compiled, checkpointed (reentrant), bf16 autocast, an EMA of the weights on the card by AveragedModel, an evaluation of it."""
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Olmo2Config, Olmo2ForCausalLM

torch.manual_seed(0)
config = Olmo2Config(vocab_size=20000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=12, use_cache=False)
model = Olmo2ForCausalLM(config).cuda().train()
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.enable_input_require_grads()
for layer in model.model.layers:
    layer.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(5):
    ids = torch.randint(0, 20000, (6, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    ema.update_parameters(model)
ema.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    print(loss.item(), ema(input_ids=ids[:2], labels=ids[:2]).loss.item())
