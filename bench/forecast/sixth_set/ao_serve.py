"""torchao: a bf16 Llama quantised in place to 8-bit weights, then another with 8-bit inputs too; both answer a prompt and write words."""
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM
for config in (Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig()):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16000, hidden_size=896, intermediate_size=2400, num_hidden_layers=8, num_attention_heads=14, num_key_value_heads=2, eos_token_id=None,
                                         bos_token_id=None, pad_token_id=0)).to("cuda", torch.bfloat16).eval()
    quantize_(model.model, config)
    ids = torch.randint(1, 16000, (6, 280), device="cuda")
    with torch.no_grad():
        print(model(ids).logits.shape)
        print(model.generate(ids[:2, :70], max_new_tokens=15, do_sample=False).shape, torch.cuda.memory_allocated() // 2**20)
    del model
    torch.cuda.empty_cache()
