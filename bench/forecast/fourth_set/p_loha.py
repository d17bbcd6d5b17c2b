"""LoHa on a ViT's attention, FP32."""
import torch
from peft import LoHaConfig, get_peft_model
from transformers import ViTConfig, ViTForImageClassification
torch.manual_seed(0)
model = ViTForImageClassification(ViTConfig(hidden_size=384, num_hidden_layers=8, num_attention_heads=6, intermediate_size=1536, num_labels=100))
model = get_peft_model(model, LoHaConfig(r=8, alpha=16, target_modules=r".*(q_proj|v_proj|query|value)", modules_to_save=["classifier"])).cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
for step in range(5):
    images, labels = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(0, 100, (16,), device="cuda")
    loss = model(pixel_values=images, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
