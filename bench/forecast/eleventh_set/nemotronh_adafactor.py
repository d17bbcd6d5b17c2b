"""Nemotron-H: state spaces, attention and MLPs in turn, bf16 autocast, checkpointed, PyTorch's Adafactor, clipped gradients."""
import torch
from transformers import NemotronHConfig, NemotronHForCausalLM

torch.manual_seed(0)
config = NemotronHConfig(vocab_size=16000, hidden_size=768, intermediate_size=2304, layers_block_type=["mamba", "mlp", "mamba", "attention", "mlp", "mamba", "mlp", "attention"], num_attention_heads=12, num_key_value_heads=4, head_dim=64,
                         mamba_num_heads=24, mamba_head_dim=64, ssm_state_size=64, n_groups=4, chunk_size=128, use_cache=False)
model = NemotronHForCausalLM(config).cuda().train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)
for step in range(4):
    ids = torch.randint(0, 16000, (2, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
