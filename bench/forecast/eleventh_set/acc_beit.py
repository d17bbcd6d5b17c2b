"""accelerate: BEiT on pictures from a DataLoader, fp16, accumulated over three batches, clipped, state saved and loaded, hits gathered."""
import tempfile
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BeitConfig, BeitForImageClassification, get_linear_schedule_with_warmup

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=3)
model = BeitForImageClassification(BeitConfig(hidden_size=576, num_hidden_layers=8, num_attention_heads=9, intermediate_size=2304, image_size=224, patch_size=16, use_relative_position_bias=True, use_mean_pooling=True, drop_path_rate=0.1, num_labels=50))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
data = TensorDataset(torch.rand(200, 3, 224, 224), torch.randint(0, 50, (200,)))
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
tests = DataLoader(data, batch_size=24)
model, optimizer, loader, tests, schedule = accelerator.prepare(model, optimizer, loader, tests, get_linear_schedule_with_warmup(optimizer, 2, 10))
for step, (pixels, labels) in enumerate(loader):
    with accelerator.accumulate(model):
        loss = model(pixel_values=pixels, labels=labels).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if step == 5:
        folder = tempfile.mkdtemp()
        accelerator.save_state(folder)
        accelerator.load_state(folder)
model.eval()
hits = 0
with torch.no_grad():
    for pixels, labels in tests:
        hits += (accelerator.gather_for_metrics(model(pixel_values=pixels).logits.argmax(-1)) == accelerator.gather_for_metrics(labels)).sum().item()
print(loss.item(), hits)
