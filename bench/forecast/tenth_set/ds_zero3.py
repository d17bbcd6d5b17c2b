"""DeepSpeed ZeRO 3 under torchrun: a Llama made under zero.Init, bf16, small buckets and live parameters, activation checkpointing, weights gathered for an evaluation."""
import os
import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
deepspeed.init_distributed("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
settings = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 3, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 10_000_000, "stage3_prefetch_bucket_size": 5_000_000,
                                  "stage3_param_persistence_threshold": 10_000, "stage3_max_live_parameters": 30_000_000, "stage3_max_reuse_distance": 30_000_000}}
with deepspeed.zero.Init(config_dict_or_path=settings):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4))
model.gradient_checkpointing_enable()
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), 1e-4), config=settings)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 768), device=engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
engine.eval()
with torch.no_grad():
    print(rank, loss.item(), engine(input_ids=ids, labels=ids).loss.item())
with deepspeed.zero.GatheredParameters([model.lm_head.weight], modifier_rank=None):
    print(rank, model.lm_head.weight.shape)
dist.destroy_process_group()
