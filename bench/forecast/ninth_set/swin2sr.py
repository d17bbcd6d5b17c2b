"""Swin2SR enlarges four times: L1 in FP32, Adam, an exponential average, then PSNR of one large picture in pieces."""
import copy
import torch
import torch.nn.functional as F
from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

torch.manual_seed(0)
model = Swin2SRForImageSuperResolution(Swin2SRConfig(image_size=64, embed_dim=120, depths=[4, 4, 4], num_heads=[6, 6, 6], window_size=8, upscale=4, upsampler="pixelshuffledirect")).cuda()
average = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.99))
for step in range(5):
    large = torch.rand(8, 3, 256, 256, device="cuda")
    small = F.interpolate(large, scale_factor=0.25, mode="bicubic", antialias=True)
    loss = F.l1_loss(model(pixel_values=small).reconstruction, large)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
with torch.no_grad():
    picture = torch.rand(1, 3, 320, 320, device="cuda")
    out = torch.zeros(1, 3, 1280, 1280, device="cuda")
    for y in range(0, 320, 160):
        for x in range(0, 320, 160):
            out[..., 4 * y:4 * y + 640, 4 * x:4 * x + 640] = average(pixel_values=picture[..., y:y + 160, x:x + 160]).reconstruction
print(-10 * torch.log10(F.mse_loss(out, torch.rand_like(out))))
