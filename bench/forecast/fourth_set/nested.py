"""An encoder of PyTorch answers for padded texts: its fast path packs them as nested tensors."""
import torch
import torch.nn as nn
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=False)
model = nn.TransformerEncoder(layer, 6).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    model(torch.randn(16, 200, 512, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    for _ in range(3):
        lengths = torch.randint(50, 256, (32,))
        mask = (torch.arange(256)[None] >= lengths[:, None]).cuda()
        model(torch.randn(32, 256, 512, device="cuda"), src_key_padding_mask=mask)
