"""accelerate: accumulation, clipping, a scheduler, its state saved and loaded, metrics gathered."""
import tempfile
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup
torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
model = BertForSequenceClassification(BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
loader = DataLoader(TensorDataset(torch.randint(0, 8000, (204, 192)), torch.randint(0, 2, (204,))), batch_size=12, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, get_linear_schedule_with_warmup(optimizer, 2, 20))
for epoch in range(2):
    model.train()
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    with torch.no_grad():
        for ids, labels in loader:
            guess, labels = accelerator.gather_for_metrics((model(input_ids=ids).logits.argmax(-1), labels))
            right += (guess == labels).sum().item()
    folder = tempfile.mkdtemp()
    accelerator.save_state(folder)
    accelerator.load_state(folder)
