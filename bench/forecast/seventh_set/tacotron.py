"""torchaudio's Tacotron 2 learns from texts of several lengths with teacher forcing, the post-net too, Adam with decay, FP32; then it speaks until
its gate or 60 frames."""
import torch
import torch.nn.functional as F
from torchaudio.models import Tacotron2
torch.manual_seed(0)
model = Tacotron2(n_mels=80, n_symbol=100, symbol_embedding_dim=384, encoder_embedding_dim=384, attention_rnn_dim=768, decoder_rnn_dim=768, decoder_max_step=60, decoder_early_stopping=False).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-6)
for step in range(4):
    texts, frames = torch.randint(20, 70, (8,)).sort(descending=True)[0], torch.randint(60, 140, (8,))
    tokens, mel = torch.randint(0, 100, (8, int(texts.max()))).cuda(), torch.randn(8, 80, int(frames.max())).cuda()
    gate = (torch.arange(int(frames.max()))[None] >= frames[:, None] - 1).float().cuda()
    out, post, said, _ = model(tokens, texts.cuda(), mel, frames.cuda())
    loss = F.mse_loss(out, mel) + F.mse_loss(post, mel) + F.binary_cross_entropy_with_logits(said, gate)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(loss.item())
model.eval()
with torch.no_grad():
    print(model.infer(tokens[:3], texts[:3].cuda())[0].shape)
