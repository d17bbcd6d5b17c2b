"""torchao: quantisation-aware training of 4-bit weights and 8-bit inputs by fake quantisation, then converted."""
import torch
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_
from torchao.quantization.qat import QATConfig
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=8005, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8)).to("cuda", torch.bfloat16)
base = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
quantize_(model.model, QATConfig(base, step="prepare"))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(4):
    ids = torch.randint(0, 8005, (5, 307), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
del optimizer
quantize_(model.model, QATConfig(base, step="convert"))
with torch.no_grad():
    print(model(ids).logits.shape)
