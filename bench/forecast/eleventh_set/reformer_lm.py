"""Reformer: reversible layers, local and hashed attention, axial positions of 1024 words, FP32, Adagrad."""
import torch
from transformers import ReformerConfig, ReformerModelWithLMHead

torch.manual_seed(0)
config = ReformerConfig(vocab_size=8000, hidden_size=256, attention_head_size=64, num_attention_heads=4, feed_forward_size=1024, attn_layers=["local", "lsh", "local", "lsh", "local", "local"], axial_pos_shape=(32, 32), axial_pos_embds_dim=(64, 192),
                        is_decoder=True, num_buckets=16, lsh_attn_chunk_length=64, local_attn_chunk_length=64, max_position_embeddings=1024, chunk_size_feed_forward=0, num_hashes=2, hash_seed=0)
model = ReformerModelWithLMHead(config).cuda().train()
optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
for step in range(4):
    ids = torch.randint(0, 8000, (8, 1024), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
