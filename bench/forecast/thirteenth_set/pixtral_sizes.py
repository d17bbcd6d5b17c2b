"""Mistral 3 with Pixtral's eye: pictures of three sizes in one batch, language model frozen but for its adapters by hand, bf16, SGD with momentum, answers drawn."""
import torch
import torch.nn as nn
from transformers import Mistral3Config, Mistral3ForConditionalGeneration

torch.manual_seed(0)


class Low(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features, device="cuda") * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device="cuda"))

    def forward(self, x):
        return self.base(x) + (x.to(self.a.dtype) @ self.a.T @ self.b.T).to(x.dtype)


config = Mistral3Config(image_token_index=10, spatial_merge_size=2, vision_config=dict(model_type="pixtral", hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, head_dim=64, image_size=560, patch_size=14),
                        text_config=dict(model_type="mistral", vocab_size=24000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=10, num_attention_heads=16, num_key_value_heads=4, head_dim=64, pad_token_id=0, bos_token_id=1, eos_token_id=2))
model = Mistral3ForConditionalGeneration(config).to("cuda", torch.bfloat16).requires_grad_(False)
for layer in model.model.language_model.layers:
    for name in ("q_proj", "v_proj", "o_proj"):
        setattr(layer.self_attn, name, Low(getattr(layer.self_attn, name)))
for p in model.model.multi_modal_projector.parameters():
    p.requires_grad_(True)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=1e-2, momentum=0.9)
sizes = torch.tensor([[448, 336], [224, 560], [336, 336]])


def inputs(text):
    rows = []
    for h, w in sizes.tolist():
        rows.append([10] * (h // 28 * (w // 28)))
    longest = max(map(len, rows)) + text
    ids = torch.stack([torch.cat([torch.tensor(r), torch.randint(11, 24000, (longest - len(r),))]) for r in rows])
    return dict(input_ids=ids.cuda(), attention_mask=torch.ones_like(ids).cuda(), pixel_values=torch.randn(3, 3, 560, 560, device="cuda", dtype=torch.bfloat16), image_sizes=sizes)


for step in range(5):
    batch = inputs(256)
    labels = batch["input_ids"].masked_fill(batch["input_ids"] == 10, -100)
    loss = model(**batch, labels=labels, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
print(loss.item(), model.generate(**inputs(40), max_new_tokens=16, min_new_tokens=16, do_sample=False).shape)
