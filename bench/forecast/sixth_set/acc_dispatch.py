"""accelerate: a checkpoint is written in shards, then loaded where a map says: layers on the card, on the host and on disk; hooks bring them; then cpu_offload."""
import tempfile
import torch
from accelerate import cpu_offload, init_empty_weights, load_checkpoint_and_dispatch
from transformers import OPTConfig, OPTForCausalLM
torch.manual_seed(0)
config = OPTConfig(vocab_size=10001, hidden_size=768, ffn_dim=3000, num_hidden_layers=8, num_attention_heads=12, max_position_embeddings=700, word_embed_proj_dim=768)
folder = tempfile.mkdtemp()
OPTForCausalLM(config).to(torch.float16).save_pretrained(folder, max_shard_size="40MB")
with init_empty_weights():
    model = OPTForCausalLM(config)
model.tie_weights()
places = {"model.decoder.embed_tokens": 0, "model.decoder.embed_positions": 0, "lm_head": 0, "model.decoder.final_layer_norm": 0}
places |= {f"model.decoder.layers.{i}": 0 if i < 3 else "cpu" if i < 6 else "disk" for i in range(8)}
model = load_checkpoint_and_dispatch(model, folder, device_map=places, offload_folder=tempfile.mkdtemp(), dtype=torch.float16, no_split_module_classes=["OPTDecoderLayer"])
ids = torch.randint(0, 10001, (3, 611), device="cuda")
with torch.no_grad():
    print(model(ids).logits.float().softmax(-1).amax().shape)
    print(model.generate(ids[:, :50], max_new_tokens=12, do_sample=False).shape)
other = cpu_offload(OPTForCausalLM(config).to(torch.bfloat16), execution_device=torch.device("cuda"), offload_buffers=True)
with torch.no_grad():
    for _ in range(2):
        print(other(ids).logits.shape)
