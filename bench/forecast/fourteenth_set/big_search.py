"""How large may a batch be? A ViT-L is trained with more and more pictures until memory runs out, then halves between, as scripts do; the card is shared by nothing."""
import gc
import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
with torch.device("cuda"):
    model = ViTForImageClassification(ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=1000))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def fits(batch):
    try:
        for step in range(2):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(torch.randn(batch, 3, 224, 224, device="cuda")).logits.float(), torch.randint(0, 1000, (batch,), device="cuda"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return True
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        loss = None
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()


low, high = 64, None
while high is None:
    if fits(low * 2):
        low *= 2
    else:
        high = low * 2
while high - low > 32:
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
print("largest", low, torch.cuda.max_memory_reserved() / 2**30)
