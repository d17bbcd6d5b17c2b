"""transformers' continuous batching: generate_batch with pages of its cache, prompts of many lengths."""
import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
config = Qwen3Config(vocab_size=12000, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=64)
config._attn_implementation = "sdpa"
model = Qwen3ForCausalLM(config).cuda().bfloat16().eval()
prompts = [torch.randint(3, 12000, (n,)).tolist() for n in range(20, 420, 17)]
out = model.generate_batch(inputs=prompts, generation_config=GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=1, pad_token_id=0, num_blocks=600,
                                                                             max_batch_tokens=512, use_cuda_graph=False))
print(len(out))
