"""Trains an image classifier of timm on random images."""
import argparse

import timm
import torch

p = argparse.ArgumentParser()
p.add_argument("--model", default="vit_base_patch16_224")
p.add_argument("--batch", type=int, default=32)
p.add_argument("--size", type=int, default=224)
p.add_argument("--precision", default="autocast", choices=["autocast", "fp32"])
p.add_argument("--optimizer", default="adamw", choices=["adamw", "sgd"])
p.add_argument("--channels-last", action="store_true")
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--compile", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
sized = {"img_size": a.size} if "vit" in a.model else {}
model = timm.create_model(a.model, pretrained=False, num_classes=1000, **sized).to("cuda")
if a.channels_last:
    model = model.to(memory_format=torch.channels_last)
if a.checkpoint:
    model.set_grad_checkpointing()
run = torch.compile(model) if a.compile else model
if a.optimizer == "adamw":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(8):
    images, labels = torch.randn(a.batch, 3, a.size, a.size).to("cuda"), torch.randint(1000, (a.batch,)).to("cuda")
    if a.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "autocast"):
        loss = smooth(run(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
