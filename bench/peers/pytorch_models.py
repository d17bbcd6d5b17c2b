"""Models of transformers, made from small configurations with weights of random numbers: what pytorch_steps.py trains beside its own model. A step is
loss = model(input_ids, labels=input_ids).loss, as Trainer takes it, with the dropout that a configuration has."""
import transformers as hf

GPT2 = dict(n_positions=1024, bos_token_id=0, eos_token_id=0)
GEMMA = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0, max_position_embeddings=8192)
EXPERTS = dict(hidden_size=512, num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=8192, bos_token_id=0, eos_token_id=0, pad_token_id=0)
SHAPES = {
    "gpt2": (hf.GPT2Config, dict(GPT2, vocab_size=50257, n_embd=768, n_layer=12, n_head=12)),
    "gpt2-narrow": (hf.GPT2Config, dict(GPT2, vocab_size=5000, n_embd=384, n_layer=3, n_head=6)),
    "gpt2-no-dropout": (hf.GPT2Config, dict(GPT2, vocab_size=10000, n_embd=640, n_layer=4, n_head=10, resid_pdrop=0.0, embd_pdrop=0.0,
                                            attn_pdrop=0.0)),
    "gemma-narrow": (hf.GemmaConfig, dict(GEMMA, vocab_size=16000, hidden_size=512, intermediate_size=2048, num_hidden_layers=3,
                                          num_attention_heads=4, num_key_value_heads=1, head_dim=128)),
    "gemma2-narrow": (hf.Gemma2Config, dict(GEMMA, vocab_size=16000, hidden_size=512, intermediate_size=2048, num_hidden_layers=4,
                                            num_attention_heads=8, num_key_value_heads=4, head_dim=64, sliding_window=256)),
    "gemma3-narrow": (hf.Gemma3TextConfig, dict(GEMMA, vocab_size=16000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6,
                                                num_attention_heads=4, num_key_value_heads=1, head_dim=128, sliding_window=512)),
    "gemma3-wide": (hf.Gemma3TextConfig, dict(GEMMA, vocab_size=32000, hidden_size=1280, intermediate_size=5120, num_hidden_layers=7,
                                              num_attention_heads=8, num_key_value_heads=4, head_dim=256, sliding_window=1024)),
    "mixtral-narrow": (hf.MixtralConfig, dict(EXPERTS, vocab_size=8000, intermediate_size=1024, num_hidden_layers=4, num_local_experts=8,
                                              num_experts_per_tok=2, sliding_window=None)),
    "qwen3-moe-narrow": (hf.Qwen3MoeConfig, dict(EXPERTS, vocab_size=16000, moe_intermediate_size=256, num_hidden_layers=4, head_dim=128,
                                                 num_experts=32, num_experts_per_tok=4, norm_topk_prob=True)),
    "qwen3-moe-wide": (hf.Qwen3MoeConfig, dict(EXPERTS, hidden_size=1024, vocab_size=32000, moe_intermediate_size=384, num_hidden_layers=3,
                                               head_dim=128, num_experts=64, num_experts_per_tok=8, norm_topk_prob=True)),
    "gpt-oss-narrow": (hf.GptOssConfig, dict(EXPERTS, vocab_size=16000, intermediate_size=512, num_hidden_layers=4, head_dim=64,
                                             num_local_experts=16, num_experts_per_tok=4, sliding_window=128)),
}


def model_of(name, attention, device, dtype):
    import torch
    loops = name.endswith("-loop")  # over experts, as transformers did before 5: what an expert gets depends on its tokens
    config, sizes = SHAPES[name.removesuffix("-loop")]
    config = config(**sizes, use_cache=False, **({"experts_implementation": "eager"} if loops else {}))
    with torch.device(device):
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation={"fused": "sdpa", "naive": "eager"}[attention], dtype=dtype)
    model.train()
    return model
