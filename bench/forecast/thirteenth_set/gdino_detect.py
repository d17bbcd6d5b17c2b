"""Grounding DINO: boxes by text with its matching loss, a small Swin and BERT, two rates by name, clipped by 0.1, then boxes above a threshold."""
import torch
from transformers import BertConfig, GroundingDinoConfig, GroundingDinoForObjectDetection, SwinConfig

torch.manual_seed(0)
swin = SwinConfig(image_size=256, embed_dim=64, depths=[2, 2, 4, 2], num_heads=[2, 4, 8, 16], window_size=8, out_indices=[2, 3, 4])
bert = BertConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536)
config = GroundingDinoConfig(backbone_config=swin, text_config=bert, num_queries=300, encoder_layers=3, decoder_layers=3, encoder_ffn_dim=1024, decoder_ffn_dim=1024, auxiliary_loss=True)
model = GroundingDinoForObjectDetection(config).cuda().train()
slow = [p for n, p in model.named_parameters() if "backbone" in n]
fast = [p for n, p in model.named_parameters() if "backbone" not in n]
optimizer = torch.optim.AdamW([{"params": slow, "lr": 1e-5}, {"params": fast, "lr": 1e-4}], weight_decay=1e-4)
# [CLS] three phrases, each ended by a full stop (1012), [SEP]
text = torch.tensor([[101, 2345, 1012, 4321, 2222, 1012, 3456, 1012, 102]] * 4, device="cuda")
for step in range(4):
    labels = [{"class_labels": torch.randint(0, 3, (n,), device="cuda"), "boxes": torch.rand(n, 4, device="cuda") * 0.4 + 0.2} for n in (5, 9, 3, 12)]
    out = model(pixel_values=torch.randn(4, 3, 384, 384, device="cuda"), pixel_mask=torch.ones(4, 384, 384, dtype=torch.long, device="cuda"), input_ids=text, token_type_ids=torch.zeros_like(text), attention_mask=torch.ones_like(text), labels=labels)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    out = model(pixel_values=torch.randn(2, 3, 512, 640, device="cuda"), input_ids=text[:2], token_type_ids=torch.zeros_like(text[:2]), attention_mask=torch.ones_like(text[:2]))
    scores = out.logits.sigmoid().amax(-1)
    boxes = [b[s > 0.3] for b, s in zip(out.pred_boxes, scores)]
print([len(b) for b in boxes])
