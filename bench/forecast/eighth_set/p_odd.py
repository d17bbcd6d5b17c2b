"""peft's rarer options: rsLoRA over replicated layers, tokens that train alone, norms alone, C3A, DoRA beside trained tokens and a whole head."""
import gc
import torch
from peft import C3AConfig, LNTuningConfig, LoraConfig, TrainableTokensConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
names = ["q_proj", "v_proj"]
for config in (LoraConfig(r=16, use_rslora=True, layer_replication=[[0, 3], [1, 4]], target_modules=names), TrainableTokensConfig(token_indices=[1, 5, 8000], target_modules=["embed_tokens"]), LNTuningConfig(target_modules=["input_layernorm"]),
               C3AConfig(block_size=64, target_modules=names), LoraConfig(r=8, use_dora=True, target_modules=["up_proj"], trainable_token_indices=[3, 4], modules_to_save=["lm_head"])):
    base = LlamaForCausalLM(LlamaConfig(vocab_size=9001, hidden_size=512, intermediate_size=1344, num_hidden_layers=4, num_attention_heads=8))
    model = get_peft_model(base, config).cuda()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-3)
    for step in range(3):
        ids = torch.randint(0, 9001, (6, 257), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(type(config).__name__, loss.item())
    del base, model, optimizer, loss
    gc.collect()
