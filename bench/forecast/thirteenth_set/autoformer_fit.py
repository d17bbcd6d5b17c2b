"""Autoformer: parts of a series found by moving averages and correlations by FFT, a Student's t at the end, fp32, then a hundred futures drawn of each."""
import torch
from transformers import AutoformerConfig, AutoformerForPrediction

torch.manual_seed(0)
config = AutoformerConfig(prediction_length=48, context_length=192, lags_sequence=[1, 2, 3, 4, 5, 6, 7, 24], num_time_features=3, num_static_categorical_features=1, cardinality=[300], embedding_dimension=[16], d_model=256, encoder_attention_heads=8, decoder_attention_heads=8, encoder_layers=3, decoder_layers=3,
                          encoder_ffn_dim=1024, decoder_ffn_dim=1024, label_length=24, encoder_layerdrop=0.0, decoder_layerdrop=0.0, num_parallel_samples=100)
model = AutoformerForPrediction(config).cuda().train()
optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3)


def batch(n):
    past = 192 + 24
    return dict(past_values=torch.rand(n, past, device="cuda") * 10, past_time_features=torch.rand(n, past, 3, device="cuda"), past_observed_mask=(torch.rand(n, past, device="cuda") < 0.95).float(), static_categorical_features=torch.randint(0, 300, (n, 1), device="cuda"),
                future_time_features=torch.rand(n, 48, 3, device="cuda"))


for step in range(5):
    loss = model(**batch(96), future_values=torch.rand(96, 48, device="cuda") * 10).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    print(loss.item(), model.generate(**batch(4)).sequences.shape)
