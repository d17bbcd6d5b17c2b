"""Informer: attention over the queries that matter, then samples of the future."""
import torch
from transformers import InformerConfig, InformerForPrediction
torch.manual_seed(0)
model = InformerForPrediction(InformerConfig(prediction_length=24, context_length=96, lags_sequence=[1, 2, 3, 7], num_time_features=2, num_static_categorical_features=1,
                                             cardinality=[50], embedding_dimension=[8], d_model=64, encoder_layers=3, decoder_layers=2, encoder_ffn_dim=256,
                                             decoder_ffn_dim=256, num_parallel_samples=20)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
def batch(n):
    return dict(past_values=torch.randn(n, 103, device="cuda"), past_time_features=torch.randn(n, 103, 2, device="cuda"),
                past_observed_mask=torch.ones(n, 103, device="cuda"), static_categorical_features=torch.randint(0, 50, (n, 1), device="cuda"),
                future_time_features=torch.randn(n, 24, 2, device="cuda"))
for step in range(5):
    loss = model(**batch(64), future_values=torch.randn(64, 24, device="cuda")).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    model.generate(**batch(16))
