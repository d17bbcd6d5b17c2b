"""Trainer: LayoutLMv3 reads pages: words with boxes and pictures of 224 x 224, fp16 with a scaler, dropout, one rate for the backbone and one for the head."""
import tempfile
import torch
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification, Trainer, TrainingArguments

torch.manual_seed(0)
config = LayoutLMv3Config(vocab_size=20000, num_hidden_layers=8, num_labels=7, max_position_embeddings=514)
model = LayoutLMv3ForTokenClassification(config)


class Pages(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        box = torch.randint(0, 500, (256, 4), generator=g)
        box[:, 2:] += box[:, :2]
        return {"input_ids": torch.randint(3, 20000, (256,), generator=g), "bbox": box.clamp(max=1000), "attention_mask": torch.ones(256, dtype=torch.long),
                "pixel_values": torch.rand(3, 224, 224, generator=g), "labels": torch.randint(0, 7, (256,), generator=g)}


head = [p for n, p in model.named_parameters() if "classifier" in n]
body = [p for n, p in model.named_parameters() if "classifier" not in n]
optimizer = torch.optim.AdamW([{"params": body, "lr": 3e-5}, {"params": head, "lr": 1e-3}])
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=6, fp16=True, report_to="none", save_strategy="no", logging_steps=2)
Trainer(model=model, args=args, train_dataset=Pages(), optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, s / 3)))).train()
