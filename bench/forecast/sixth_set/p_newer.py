"""peft's newer methods one after another on one small Llama: VeRA, FourierFT, HRA, LoKr, OFT, MiSS, RandLoRA; each takes three steps and is deleted."""
import gc
import torch
from peft import FourierFTConfig, HRAConfig, LoKrConfig, MissConfig, OFTConfig, RandLoraConfig, VeraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
names = ["q_proj", "v_proj"]
for config in (VeraConfig(r=64, target_modules=names), FourierFTConfig(n_frequency=500, target_modules=names), HRAConfig(r=8, target_modules=names),
               LoKrConfig(r=16, target_modules=names), OFTConfig(r=0, oft_block_size=32, target_modules=names), MissConfig(r=32, target_modules=names),
               RandLoraConfig(r=16, target_modules=names)):
    base = LlamaForCausalLM(LlamaConfig(vocab_size=9001, hidden_size=512, intermediate_size=1200, num_hidden_layers=4, num_attention_heads=8))
    model = get_peft_model(base, config).cuda()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-3)
    for _ in range(3):
        ids = torch.randint(0, 9001, (5, 301), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(type(config).__name__, loss.item(), torch.cuda.memory_allocated() // 2**20)
    del base, model, optimizer, loss, ids
    gc.collect()
