"""VITS speaks: how long each letter lasts is drawn by flows, so the length of the sound follows from values; three batches of texts, no gradients."""
import torch
from transformers import VitsConfig, VitsModel, set_seed

set_seed(0)
model = VitsModel(VitsConfig(vocab_size=60)).cuda().eval()
lengths = []
with torch.no_grad():
    for letters in (80, 120, 60):
        ids = torch.randint(1, 60, (8, letters), device="cuda")
        mask = (torch.arange(letters, device="cuda")[None] < torch.tensor([letters - 4 * i for i in range(8)], device="cuda")[:, None]).long()
        lengths.append(model(input_ids=ids, attention_mask=mask).waveform.shape[-1])
print(lengths)
