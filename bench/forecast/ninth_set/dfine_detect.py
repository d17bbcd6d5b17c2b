"""D-FINE finds boxes: HGNet v2, denoised queries, images in channels-last by autocast, batches with different numbers of boxes, an average of weights."""
import torch
from transformers import DFineConfig, DFineForObjectDetection

torch.manual_seed(0)
config = DFineConfig(num_labels=20, num_queries=150, decoder_layers=3, encoder_hidden_dim=256, anchor_image_size=None)
model = DFineForObjectDetection(config).cuda()
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=1e-4)
for step, counts in enumerate([(3, 5, 1, 8), (2, 2, 9, 4), (12, 4, 7, 5)]):
    pixels = torch.rand(4, 3, 480, 480, device="cuda").to(memory_format=torch.channels_last)
    labels = [{"class_labels": torch.randint(0, 20, (n,), device="cuda"), "boxes": torch.rand(n, 4, device="cuda") * 0.4 + 0.2} for n in counts]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(pixel_values=pixels, labels=labels)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)
average.eval()
with torch.no_grad():
    average(pixel_values=pixels)
