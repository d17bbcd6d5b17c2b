"""Small models of well-known families, by name: what AutoConfig would read from the hub, written here. Weights are random."""
from transformers import AutoConfig

LLAMA = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, head_dim=64)
CONFIGS = {
    "llama": dict(model_type="llama", vocab_size=32000, max_position_embeddings=4096, **LLAMA),
    "llama-1b": dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=64, max_position_embeddings=8192, tie_word_embeddings=True),
    "llama-tiny": dict(model_type="llama", vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                       num_key_value_heads=8, max_position_embeddings=2048),
    "qwen3": dict(model_type="qwen3", vocab_size=50000, max_position_embeddings=4096, **{**LLAMA, "head_dim": 128, "num_hidden_layers": 10}),
    "mistral": dict(model_type="mistral", vocab_size=32000, sliding_window=512, max_position_embeddings=4096, **LLAMA),
    "gemma3": dict(model_type="gemma3_text", vocab_size=65536, hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=4,
                   num_key_value_heads=1, head_dim=256, sliding_window=512, max_position_embeddings=4096),
    "olmo2": dict(model_type="olmo2", vocab_size=50304, max_position_embeddings=4096,
                  **{**{k: v for k, v in LLAMA.items() if k != "head_dim"}, "num_key_value_heads": 16}),
    "gpt2": dict(model_type="gpt2", vocab_size=50257, n_embd=768, n_layer=12, n_head=12, n_positions=1024),
    "phi": dict(model_type="phi", vocab_size=51200, hidden_size=1024, intermediate_size=4096, num_hidden_layers=10, num_attention_heads=16),
    "qwen3-moe": dict(model_type="qwen3_moe", vocab_size=32000, hidden_size=768, moe_intermediate_size=512, intermediate_size=2048, num_hidden_layers=6,
                      num_attention_heads=12, num_key_value_heads=4, head_dim=64, num_experts=16, num_experts_per_tok=4, output_router_logits=True),
    "olmoe": dict(model_type="olmoe", vocab_size=50304, hidden_size=768, intermediate_size=768, num_hidden_layers=6, num_attention_heads=12,
                  num_key_value_heads=12, num_experts=16, num_experts_per_tok=4),
    "mamba2": dict(model_type="mamba2", vocab_size=32000, hidden_size=768, num_hidden_layers=8, num_heads=24, head_dim=64, state_size=64, n_groups=1),
}


def config(name, **changes):
    return AutoConfig.for_model(**{**CONFIGS[name], **changes})
