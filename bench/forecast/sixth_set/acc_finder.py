"""accelerate: find_executable_batch_size under a limit for this process, a model made anew for each try, gradients accumulated, then gathered metrics."""
import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size, release_memory, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification
set_seed(0)
torch.cuda.set_per_process_memory_fraction(0.017)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
ids = torch.randint(0, 8009, (400, 397))
labels = torch.randint(0, 3, (400,))
@find_executable_batch_size(starting_batch_size=160)
def train(batch):
    accelerator.free_memory()
    print("batch", batch)
    model = BertForSequenceClassification(BertConfig(vocab_size=8009, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2000, num_labels=3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(ids, labels), batch_size=batch, shuffle=True))
    for x, y in loader:
        with accelerator.accumulate(model):
            answer = model(input_ids=x, labels=y)
            accelerator.backward(answer.loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(accelerator.gather_for_metrics(answer.logits).shape)
    release_memory(model, optimizer)
train()
