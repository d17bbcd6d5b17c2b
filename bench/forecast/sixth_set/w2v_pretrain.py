"""wav2vec 2.0 is pretrained: spans masked by transformers' own functions, negatives drawn on the host, codes by Gumbel's softmax, a penalty on features, fp16."""
import numpy as np
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining
from transformers.models.wav2vec2.modeling_wav2vec2 import _compute_mask_indices, _sample_negative_indices
torch.manual_seed(0)
np.random.seed(0)
config = Wav2Vec2Config(hidden_size=384, num_hidden_layers=5, num_attention_heads=6, intermediate_size=1500, conv_dim=(256,) * 7, codevector_dim=192, proj_codevector_dim=192,
                        num_codevectors_per_group=160, num_negatives=50, feat_quantizer_dropout=0.1, layerdrop=0.0)
model = Wav2Vec2ForPreTraining(config).cuda()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = torch.optim.AdamW(model.parameters(), 5e-4, eps=1e-6)
scaler = torch.amp.GradScaler(init_scale=2.0**10)
for step in range(4):
    sounds = torch.randn(6, 47123)
    frames = int(model._get_feat_extract_output_lengths(47123))
    mask = _compute_mask_indices((6, frames), 0.2, 2)
    negatives = _sample_negative_indices((6, frames), 50, mask)
    with torch.autocast("cuda", torch.float16):
        out = model(sounds.cuda(), mask_time_indices=torch.tensor(mask).cuda(), sampled_negative_indices=torch.tensor(negatives).cuda())
    loss = out.loss / mask.sum().item()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    model.set_gumbel_temperature(max(2 * 0.999**step, 0.5))
    print(loss.item(), out.diversity_loss.item())
