"""timm: EVA-02 with patches dropped, bf16, a linear probe afterwards."""
import timm
import torch
torch.manual_seed(0)
model = timm.create_model("eva02_tiny_patch14_224", num_classes=100, patch_drop_rate=0.25).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(48, 3, 224, 224, device="cuda")), torch.randint(0, 100, (48,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
model.eval()
probe = torch.nn.Linear(model.num_features, 10).cuda()
optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
for step in range(2):
    with torch.no_grad():
        features = model.forward_head(model.forward_features(torch.randn(48, 3, 224, 224, device="cuda")), pre_logits=True)
    torch.nn.functional.cross_entropy(probe(features), torch.randint(0, 10, (48,), device="cuda")).backward()
    optimizer.step()
    optimizer.zero_grad()
