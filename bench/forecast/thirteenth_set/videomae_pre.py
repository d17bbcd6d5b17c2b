"""VideoMAE: tubes hidden at random (nine of ten), pixels of each patch normalised, bf16 autocast, layer-wise rates, fine-tuned afterwards with mixed labels."""
import torch
import torch.nn.functional as F
from transformers import VideoMAEConfig, VideoMAEForPreTraining, VideoMAEForVideoClassification

torch.manual_seed(0)
config = VideoMAEConfig(image_size=160, num_frames=16, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, decoder_hidden_size=256, decoder_num_attention_heads=4, decoder_intermediate_size=1024, num_labels=50)
model = VideoMAEForPreTraining(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
for step in range(4):
    video = torch.randn(12, 16, 3, 160, 160, device="cuda")
    hidden = torch.zeros(100, dtype=torch.bool)
    hidden[torch.randperm(100)[:90]] = True
    mask = hidden.repeat(8).expand(12, -1).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(video, bool_masked_pos=mask).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
tuned = VideoMAEForVideoClassification(config).cuda().train()
tuned.videomae.load_state_dict(model.videomae.state_dict(), strict=False)
del model, optimizer
groups = {}
for name, p in tuned.named_parameters():
    depth = int(name.split("layer.")[1].split(".")[0]) + 1 if "layer." in name else 0 if "embeddings" in name else 9
    groups.setdefault((depth, p.ndim > 1), []).append(p)
optimizer = torch.optim.AdamW([{"params": v, "lr": 1e-3 * 0.75 ** (9 - d), "weight_decay": 0.05 if many else 0} for (d, many), v in groups.items()])
for step in range(3):
    video, share = torch.randn(8, 16, 3, 160, 160, device="cuda"), torch.distributions.Beta(0.8, 0.8).sample().item()
    labels = F.one_hot(torch.randint(0, 50, (8,), device="cuda"), 50).float()
    video, labels = share * video + (1 - share) * video.flip(0), share * labels + (1 - share) * labels.flip(0)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(tuned(video).logits, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
