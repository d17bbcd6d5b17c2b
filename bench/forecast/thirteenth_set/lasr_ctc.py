"""Lasr (a conformer with rotary positions): CTC on sounds of several lengths with masks, SpecAugment by hand, bf16 autocast, AdamW, layers dropped, greedy words."""
import torch
from transformers import LasrCTCConfig, LasrForCTC

torch.manual_seed(0)
config = LasrCTCConfig(vocab_size=512, encoder_config=dict(hidden_size=512, num_hidden_layers=10, num_attention_heads=8, intermediate_size=2048, num_mel_bins=128, layerdrop=0.0))
model = LasrForCTC(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) ** -0.5, (n + 1) * 100**-1.5))


def batch(frames):
    mask = torch.arange(max(frames), device="cuda") < torch.tensor(frames, device="cuda")[:, None]
    sounds = torch.randn(len(frames), max(frames), 128, device="cuda")
    for row in sounds:  # two stripes of time, two of frequency
        for _ in range(2):
            at, wide = torch.randint(0, 300, (1,)).item(), torch.randint(5, 40, (1,)).item()
            row[at:at + wide] = 0
            low = torch.randint(0, 100, (1,)).item()
            row[:, low:low + 20] = 0
    labels = torch.randint(1, 512, (len(frames), max(frames) // 16), device="cuda")
    labels[torch.arange(labels.shape[1], device="cuda") >= torch.tensor([f // 16 for f in frames], device="cuda")[:, None]] = 0
    return dict(input_features=sounds, attention_mask=mask, labels=labels)


for frames in ([900, 860, 700, 512], [1500, 1480, 1400, 1204], [640] * 8, [1500, 1480, 1400, 1204]):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch(frames)).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warm.step()
    optimizer.zero_grad()
model.eval()
inputs = batch([1600] * 8)
inputs.pop("labels")
with torch.no_grad():
    words = model(**inputs).logits.argmax(-1)
print(loss.item(), [len(torch.unique_consecutive(row)) for row in words.cpu()])
