"""transformers' TimesFM learns series of several lengths and frequencies; quantiles; then long forecasts without gradients."""
import torch
from transformers import TimesFmConfig, TimesFmModelForPrediction
torch.manual_seed(0)
model = TimesFmModelForPrediction(TimesFmConfig(hidden_size=448, intermediate_size=900, num_hidden_layers=9, num_attention_heads=7, head_dim=64, context_length=480, horizon_length=96)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(4):
    past = [torch.randn(n).cumsum(0).cuda() for n in torch.randint(100, 480, (90,)).tolist()]
    out = model(past_values=past, freq=[i % 3 for i in range(90)], future_values=torch.randn(90, 96, device="cuda"))
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(out.loss.item())
model.eval()
with torch.no_grad():
    print(model(past_values=past, freq=[0] * 90).mean_predictions.shape)
