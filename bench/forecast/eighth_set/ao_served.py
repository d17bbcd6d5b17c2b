"""torchao: AdamW of its own whose moments are in fp8, then weights in int8 and float8 by quantize_ and a generation with each."""
import torch
from torchao.optim import AdamWFp8
from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=12000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12)
for made in (lambda p: AdamWFp8(p, lr=1e-4),):
    model = LlamaForCausalLM(config).cuda().bfloat16()
    optimizer = made(model.parameters())
    for step in range(3):
        ids = torch.randint(0, 12000, (4, 384), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del optimizer
for config_of in (Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig(), Float8DynamicActivationFloat8WeightConfig()):
    served = LlamaForCausalLM(config).cuda().bfloat16().eval()
    quantize_(served, config_of, filter_fn=lambda m, name: isinstance(m, torch.nn.Linear) and "lm_head" not in name)
    with torch.no_grad():
        print(served.generate(torch.randint(0, 12000, (4, 100), device="cuda"), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0).shape)
    del served
