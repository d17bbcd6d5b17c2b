"""wav2vec2 fine-tuned with CTC: frozen feature encoder, sounds of several lengths, masks over time."""
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC
torch.manual_seed(0)
config = Wav2Vec2Config(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, vocab_size=40, mask_time_prob=0.1, mask_time_length=5,
                        do_stable_layer_norm=True, feat_extract_norm="layer", ctc_loss_reduction="mean", pad_token_id=0)
model = Wav2Vec2ForCTC(config).cuda()
model.freeze_feature_encoder()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
scaler = torch.amp.GradScaler()
for step in range(5):
    lengths = torch.randint(30000, 80000, (6,))
    sound = torch.randn(6, int(lengths.max()))
    mask = (torch.arange(sound.shape[1])[None] < lengths[:, None]).long()
    labels = torch.randint(1, 40, (6, 30))
    labels[:, 25:] = -100
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(sound.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
