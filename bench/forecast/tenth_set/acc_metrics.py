"""accelerate: sequence classification with BERT, accumulate, gather_for_metrics over an uneven evaluation set, save_state in the loop."""
import tempfile
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
set_seed(1)
folder = tempfile.mkdtemp()
model = BertForSequenceClassification(BertConfig(vocab_size=16000, hidden_size=768, num_hidden_layers=6, num_attention_heads=12, intermediate_size=3072, num_labels=4))


def rows(n):
    return TensorDataset(torch.randint(5, 16000, (n, 192)), torch.randint(0, 4, (n,)))


train, test = DataLoader(rows(200), 16, shuffle=True), DataLoader(rows(75), 32)
opt = torch.optim.AdamW(model.parameters(), 3e-5)
model, opt, train, test, schedule = accelerator.prepare(model, opt, train, test, get_linear_schedule_with_warmup(opt, 2, 20))
for epoch in range(2):
    model.train()
    for ids, labels in train:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
            opt.zero_grad()
    model.eval()
    right = seen = 0
    for ids, labels in test:
        with torch.no_grad():
            guess = model(input_ids=ids).logits.argmax(-1)
        guess, labels = accelerator.gather_for_metrics((guess, labels))
        right, seen = right + (guess == labels).sum().item(), seen + len(labels)
    accelerator.print(epoch, right / seen, seen)
    accelerator.save_state(f"{folder}/epoch{epoch}")
accelerator.end_training()
