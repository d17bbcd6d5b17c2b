"""timm: FastViT learns from a larger network (logits), AutoAugment left out, channels-last, bf16, Lion of timm, gradient clipped by AGC, then fused for serving."""
import timm
import torch
import torch.nn.functional as F
from timm.optim import create_optimizer_v2
from timm.utils import dispatch_clip_grad
from timm.utils.model import reparameterize_model

torch.manual_seed(0)
model = timm.create_model("fastvit_sa12", num_classes=200, drop_path_rate=0.1).to("cuda", memory_format=torch.channels_last)
teacher = timm.create_model("regnety_040", num_classes=200).to("cuda", memory_format=torch.channels_last).eval().requires_grad_(False)
optimizer = create_optimizer_v2(model, opt="lion", lr=1e-4, weight_decay=0.1)
for step in range(5):
    pictures, labels = torch.rand(32, 3, 256, 256, device="cuda").contiguous(memory_format=torch.channels_last), torch.randint(0, 200, (32,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.no_grad():
            told = teacher(pictures)
        out = model(pictures)
        loss = 0.5 * F.cross_entropy(out, labels) + 0.5 * F.kl_div((out / 2).log_softmax(-1), (told / 2).softmax(-1), reduction="batchmean") * 4
    loss.backward()
    dispatch_clip_grad(model.parameters(), 0.02, mode="agc")
    optimizer.step()
    optimizer.zero_grad()
served = reparameterize_model(model.eval())
with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
    print(loss.item(), served(torch.rand(128, 3, 256, 256, device="cuda")).shape)
