"""SegFormer for 19 classes at odd sizes, logits brought to the labels' size, places ignored, poly rate, gradients summed twice, bf16; a sliding
window and counts by class in the evaluation."""
import torch
import torch.nn.functional as F
from transformers import SegformerConfig, SegformerForSemanticSegmentation
torch.manual_seed(0)
model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=19, depths=[2, 2, 2, 2], hidden_sizes=[32, 64, 160, 256], decoder_hidden_size=256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 6e-5, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, 4, 0.9)
for step in range(4):
    for half in range(2):
        x, y = torch.randn(4, 3, 250, 377, device="cuda"), torch.randint(0, 19, (4, 250, 377))
        y[:, :20] = 255
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(pixel_values=x).logits
        logits = F.interpolate(logits.float(), size=y.shape[-2:], mode="bilinear", align_corners=False)
        loss = F.cross_entropy(logits, y.cuda(), ignore_index=255) / 2
        loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    x, y = torch.randn(1, 3, 512, 700, device="cuda"), torch.randint(0, 19, (1, 512, 700), device="cuda")
    votes, seen = torch.zeros(1, 19, 512, 700, device="cuda"), torch.zeros(512, 700, device="cuda")
    for top in (0, 128, 256):
        for left in (0, 222, 444):
            out = model(pixel_values=x[..., top:top + 256, left:left + 256]).logits
            votes[..., top:top + 256, left:left + 256] += F.interpolate(out, size=(256, 256), mode="bilinear")
            seen[top:top + 256, left:left + 256] += 1
    p = (votes / seen).argmax(1)
    keep = y != 255
    hist = torch.bincount(19 * y[keep] + p[keep], minlength=361).view(19, 19).float()
    print(loss.item(), (hist.diag() / (hist.sum(0) + hist.sum(1) - hist.diag())).mean().item())
