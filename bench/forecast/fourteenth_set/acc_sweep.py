"""accelerate: three learning rates one after another in one process, each with a new ConvBERT, free_memory between them, accumulation, clipping, gathered accuracy."""
import gc
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import ConvBertConfig, ConvBertForSequenceClassification, get_linear_schedule_with_warmup

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
results = {}
for lr, layers in ((5e-5, 4), (1e-4, 6), (3e-4, 5)):
    set_seed(42)
    model = ConvBertForSequenceClassification(ConvBertConfig(vocab_size=15000, hidden_size=512, embedding_size=128, num_hidden_layers=layers, num_attention_heads=8, intermediate_size=2048, num_labels=5))
    rows = [{"input_ids": ids, "labels": int(ids[0]) % 5} for ids in torch.randint(3, 15000, (128, 192))]
    train, held = DataLoader(rows[:96], batch_size=16, shuffle=True), DataLoader(rows[96:], batch_size=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 6)
    model, optimizer, train, held, schedule = accelerator.prepare(model, optimizer, train, held, schedule)
    model.train()
    for step, batch in enumerate(train):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    hits = []
    for batch in held:
        with torch.no_grad():
            guess = model(**batch).logits.argmax(-1)
        guess, labels = accelerator.gather_for_metrics((guess, batch["labels"]))
        hits.append((guess == labels).float())
    results[lr] = torch.cat(hits).mean().item()
    model, optimizer, train, held, schedule = accelerator.free_memory(model, optimizer, train, held, schedule)
    del loss, batch, guess, labels, hits
    gc.collect()
    torch.cuda.empty_cache()
print(results)
