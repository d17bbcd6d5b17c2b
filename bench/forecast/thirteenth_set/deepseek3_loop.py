"""DeepSeek V3: latent attention and routed experts in groups, biases of the router moved by its loads as in the paper, checkpointed, Adafactor, then decoding."""
import torch
from torch import nn
from transformers import Adafactor, DeepseekV3Config, DeepseekV3ForCausalLM

torch.manual_seed(0)
config = DeepseekV3Config(vocab_size=16000, hidden_size=768, intermediate_size=2048, moe_intermediate_size=384, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8, n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4, kv_lora_rank=128, q_lora_rank=384, qk_rope_head_dim=32,
                          qk_nope_head_dim=64, v_head_dim=64, first_k_dense_replace=1, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = DeepseekV3ForCausalLM(config).to("cuda", torch.bfloat16).train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False, beta1=0.9)
routers = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")]
loads = {}


def count(module, inputs, out):
    with torch.no_grad():
        scores = nn.functional.linear(inputs[0].reshape(-1, 768).float(), module.weight.float()).sigmoid() + module.e_score_correction_bias
        loads[module] = torch.bincount(scores.topk(4, -1).indices.flatten(), minlength=16).float()


for router in routers:
    router.register_forward_hook(count)
for step in range(4):
    ids = torch.randint(3, 16000, (4, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for router, load in loads.items():
            router.e_score_correction_bias += 1e-3 * torch.sign(load.mean() - load)
print(loss.item())
model.eval()
model.gradient_checkpointing_disable()
print(model.generate(torch.randint(3, 16000, (8, 128), device="cuda"), max_new_tokens=16, min_new_tokens=16, do_sample=False, repetition_penalty=1.2).shape)
