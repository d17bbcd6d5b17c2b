"""Trains an encoder on sentences of several lengths, padded to the longest: masked tokens (BERT, ModernBERT), or classes."""
import argparse

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, ModernBertConfig, ModernBertForMaskedLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="bert", choices=["bert", "bert-classes", "modernbert"])
p.add_argument("--batch", type=int, default=16)
p.add_argument("--len", type=int, default=512)
p.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
p.add_argument("--attention", default="sdpa")
a = p.parse_args()

torch.manual_seed(0)
if a.model == "modernbert":
    model = ModernBertForMaskedLM._from_config(ModernBertConfig(num_hidden_layers=12, reference_compile=False), attn_implementation=a.attention)
else:
    kind = BertForMaskedLM if a.model == "bert" else BertForSequenceClassification
    model = kind._from_config(BertConfig(num_labels=2), attn_implementation=a.attention)
vocab, classes = model.config.vocab_size, a.model == "bert-classes"
model.to("cuda").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)


def collate(sentences):
    longest = max(map(len, sentences))
    ids = torch.zeros(len(sentences), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, s in enumerate(sentences):
        ids[i, :len(s)], mask[i, :len(s)] = s, 1
    labels = torch.randint(2, (len(sentences),)) if classes else torch.where((torch.rand(ids.shape) < 0.15) & mask.bool(), ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


sentences = [torch.randint(5, vocab, (int(n),)) for n in torch.randint(a.len // 8, a.len + 1, (8 * a.batch,))]
for step, batch in enumerate(torch.utils.data.DataLoader(sentences, batch_size=a.batch, collate_fn=collate)):
    batch = {k: v.to("cuda") for k, v in batch.items()}
    with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "bf16"):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, tuple(batch["input_ids"].shape), loss.item(), flush=True)
