"""Time Series Transformer: a student's t over hourly series with static and dynamic features; 100 sampled futures each, metrics on the host."""
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import TimeSeriesTransformerConfig, TimeSeriesTransformerForPrediction

torch.manual_seed(0)
lags = [1, 2, 3, 24, 48, 168]
config = TimeSeriesTransformerConfig(prediction_length=48, context_length=168, lags_sequence=lags, num_time_features=4, num_static_categorical_features=1, cardinality=[321], embedding_dimension=[8], num_dynamic_real_features=0, d_model=128, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, scaling="std", distribution_output="student_t", num_parallel_samples=100)
model = TimeSeriesTransformerForPrediction(config).cuda()
past = config.context_length + max(lags)
n = 640
data = TensorDataset(torch.rand(n, past) + 1, torch.rand(n, past, 4), torch.ones(n, past), torch.randint(0, 321, (n, 1)), torch.rand(n, 48) + 1, torch.rand(n, 48, 4), torch.ones(n, 48))
loader = DataLoader(data, batch_size=128, shuffle=True, pin_memory=True, drop_last=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=1e-1)
for epoch in range(2):
    for batch in loader:
        pv, pt, pm, cat, fv, ft, fm = (b.cuda(non_blocking=True) for b in batch)
        loss = model(past_values=pv, past_time_features=pt, past_observed_mask=pm, static_categorical_features=cat, future_values=fv, future_time_features=ft, future_observed_mask=fm).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    out = model.generate(past_values=pv[:64], past_time_features=pt[:64], past_observed_mask=pm[:64], static_categorical_features=cat[:64], future_time_features=ft[:64])
median = out.sequences.cpu().median(1).values
print((median - fv[:64].cpu()).abs().mean())
