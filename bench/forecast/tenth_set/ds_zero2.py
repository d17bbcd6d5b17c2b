"""DeepSpeed ZeRO 2 under torchrun: OPT of transformers, bf16, torch's AdamW, clipped, accumulated, a checkpoint."""
import os
import tempfile
import deepspeed
import torch
import torch.distributed as dist
from transformers import OPTConfig, OPTForCausalLM
deepspeed.init_distributed("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = OPTForCausalLM(OPTConfig(vocab_size=16000, hidden_size=768, ffn_dim=3072, num_hidden_layers=8, num_attention_heads=12, word_embed_proj_dim=768))
settings = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 20_000_000, "allgather_bucket_size": 20_000_000}}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), 1e-4), config=settings)
for step in range(8):
    ids = torch.randint(5, 16000, (4, 512), device=engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
engine.save_checkpoint(folder[0])
print(rank, loss.item())
dist.destroy_process_group()
