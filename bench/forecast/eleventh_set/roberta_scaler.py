"""RoBERTa with norms in front, fp16 autocast with GradScaler, batches padded to their longest text, classes, an evaluation that counts hits."""
import random
import torch
from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormForSequenceClassification

torch.manual_seed(0)
random.seed(0)
config = RobertaPreLayerNormConfig(vocab_size=20000, hidden_size=768, num_hidden_layers=8, num_attention_heads=12, intermediate_size=3072, num_labels=5, max_position_embeddings=514)
model = RobertaPreLayerNormForSequenceClassification(config).cuda()
scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)


def batch(size):
    rows = [torch.randint(3, 20000, (random.randint(40, 380),)) for _ in range(size)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)
    return {"input_ids": ids.cuda(), "attention_mask": (ids != 1).long().cuda(), "labels": torch.randint(0, 5, (size,)).cuda()}


for step in range(6):
    model.train()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch(16)).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if step % 3 == 2:
        model.eval()
        hits = 0
        with torch.no_grad():
            for _ in range(2):
                b = batch(32)
                hits += (model(**b).logits.argmax(-1) == b["labels"]).sum().item()
        print(step, loss.item(), hits)
