"""Models of transformers, made from small configurations with weights of random numbers: what pytorch_steps.py trains beside its own model. A step is
loss = model(input_ids, labels=input_ids).loss, as Trainer takes it, with the dropout that a configuration has."""
import transformers as hf

GPT2 = dict(n_positions=1024, bos_token_id=0, eos_token_id=0)
GEMMA = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0, max_position_embeddings=8192)
SHAPES = {
    "gpt2": (hf.GPT2Config, dict(GPT2, vocab_size=50257, n_embd=768, n_layer=12, n_head=12)),
    "gpt2-narrow": (hf.GPT2Config, dict(GPT2, vocab_size=5000, n_embd=384, n_layer=3, n_head=6)),
    "gpt2-no-dropout": (hf.GPT2Config, dict(GPT2, vocab_size=10000, n_embd=640, n_layer=4, n_head=10, resid_pdrop=0.0, embd_pdrop=0.0,
                                            attn_pdrop=0.0)),
    "gemma-narrow": (hf.GemmaConfig, dict(GEMMA, vocab_size=16000, hidden_size=512, intermediate_size=2048, num_hidden_layers=3,
                                          num_attention_heads=4, num_key_value_heads=1, head_dim=128)),
    "gemma3-narrow": (hf.Gemma3TextConfig, dict(GEMMA, vocab_size=16000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6,
                                                num_attention_heads=4, num_key_value_heads=1, head_dim=128, sliding_window=512)),
    "gemma3-wide": (hf.Gemma3TextConfig, dict(GEMMA, vocab_size=32000, hidden_size=1280, intermediate_size=5120, num_hidden_layers=7,
                                              num_attention_heads=8, num_key_value_heads=4, head_dim=256, sliding_window=1024)),
}


def model_of(name, attention, device, dtype):
    import torch
    config, sizes = SHAPES[name]
    config = config(**sizes, use_cache=False)
    with torch.device(device):
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation={"fused": "sdpa", "naive": "eager"}[attention], dtype=dtype)
    model.train()
    return model
