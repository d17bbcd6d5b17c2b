"""BERT's masked words: texts sorted into buckets by length, a collator masks whole batches, fp16 weights' copies by autocast, LAMB of timm, a linear
schedule, TF32."""
import random
import torch
from timm.optim import Lamb
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup
torch.manual_seed(0)
random.seed(0)
torch.set_float32_matmul_precision("high")
model = BertForMaskedLM(BertConfig(vocab_size=30522, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)).cuda()
named = list(model.named_parameters())
optimizer = Lamb([{"params": [p for n, p in named if "bias" not in n and "LayerNorm" not in n], "weight_decay": 0.01},
                  {"params": [p for n, p in named if "bias" in n or "LayerNorm" in n], "weight_decay": 0.0}], lr=1e-3, max_grad_norm=1.0)
schedule = get_linear_schedule_with_warmup(optimizer, 2, 10)
texts = sorted(([random.randint(5, 30000) for _ in range(random.randint(20, 490))] for _ in range(7 * 32)), key=len)
buckets = [texts[i:i + 32] for i in range(0, len(texts), 32)]
random.shuffle(buckets)
def collate(rows):
    width = -(-max(map(len, rows)) // 8) * 8
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    mask, labels = (ids != 0).long(), ids.clone()
    chosen = torch.bernoulli(torch.full(ids.shape, 0.15)).bool() & (ids != 0)
    labels[~chosen] = -100
    ids[chosen & torch.bernoulli(torch.full(ids.shape, 0.8)).bool()] = 103
    swap = chosen & (ids != 103)
    ids[swap] = torch.randint(30522, ids.shape)[swap]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
for rows in buckets:
    batch = {k: v.pin_memory().cuda(non_blocking=True) for k, v in collate(rows).items()}
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(batch["input_ids"].shape, loss.item())
