"""SigLIP 2's kind of loss: pairs by sigmoid, chunks of words against all pictures, a learned bias and scale, Adafactor by PyTorch, bf16."""
import torch
import torch.nn.functional as F
from transformers import SiglipConfig, SiglipModel, SiglipTextConfig, SiglipVisionConfig
torch.manual_seed(0)
model = SiglipModel(SiglipConfig(text_config=SiglipTextConfig(vocab_size=32000, hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=6, projection_size=384).to_dict(),
                                 vision_config=SiglipVisionConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=6, image_size=192, patch_size=16).to_dict())).cuda()
optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3, weight_decay=1e-4)
for step in range(5):
    pictures, words = torch.randn(96, 3, 192, 192, device="cuda"), torch.randint(0, 32000, (96, 64), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        image = F.normalize(model.vision_model(pictures).pooler_output.float(), dim=-1)
        text = F.normalize(model.text_model(words).pooler_output.float(), dim=-1)
    loss = 0
    for c in range(0, 96, 24):
        logits = image @ text[c:c + 24].t() * model.logit_scale.exp() + model.logit_bias
        signs = -torch.ones_like(logits)
        signs[c:c + 24] += 2 * torch.eye(24, device="cuda")
        loss = loss - F.logsigmoid(signs * logits).sum() / 96
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
