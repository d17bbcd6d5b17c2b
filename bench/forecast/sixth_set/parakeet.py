"""transformers' Parakeet (a Fast Conformer) with CTC in bf16, spectra of several lengths, then greedy words."""
import torch
from transformers import ParakeetCTCConfig, ParakeetEncoderConfig, ParakeetForCTC
torch.manual_seed(0)
config = ParakeetCTCConfig(vocab_size=1025, encoder_config=ParakeetEncoderConfig(hidden_size=320, num_hidden_layers=5, num_attention_heads=5, intermediate_size=1280, num_mel_bins=80,
                                                                                 subsampling_conv_channels=128, layerdrop=0.0).to_dict(), pad_token_id=1024)
model = ParakeetForCTC(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
lengths = [1200, 700, 1011, 333, 950]
for _ in range(4):
    x, mask, labels = torch.randn(5, 1200, 80), torch.zeros(5, 1200, dtype=torch.long), torch.full((5, 41), 1024)
    for i, n in enumerate(lengths):
        mask[i, :n] = 1
        labels[i, :n // 30] = torch.randint(0, 1024, (n // 30,))
    x, mask, labels = x.cuda(), mask.cuda(), labels.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_features=x, attention_mask=mask, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
model.eval()
with torch.no_grad():
    answer = model.generate(input_features=x, attention_mask=mask)
    print(getattr(answer, "sequences", answer).shape)
