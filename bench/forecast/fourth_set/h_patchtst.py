"""PatchTST: forecasts 96 hours of 12 series from 512."""
import torch
from transformers import PatchTSTConfig, PatchTSTForPrediction
torch.manual_seed(0)
model = PatchTSTForPrediction(PatchTSTConfig(num_input_channels=12, context_length=512, patch_length=16, patch_stride=8, prediction_length=96, d_model=192,
                                             num_attention_heads=8, num_hidden_layers=4, ffn_dim=512, scaling="std")).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=8)
for step in range(8):
    past, future = torch.randn(32, 512, 12, device="cuda"), torch.randn(32, 96, 12, device="cuda")
    loss = model(past_values=past, future_values=future).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
