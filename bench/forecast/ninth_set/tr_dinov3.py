"""Trainer: a DINOv3 ViT with a linear head, bf16, pictures of 256 x 256, an average of the weights kept by a callback and evaluated."""
import copy
import tempfile
import torch
from torch import nn
from transformers import DINOv3ViTConfig, DINOv3ViTModel, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = DINOv3ViTModel(DINOv3ViTConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=6, image_size=256, patch_size=16, num_register_tokens=4, drop_path_rate=0.1))
        self.head = nn.Linear(384, 100)

    def forward(self, pixel_values, labels=None):
        logits = self.head(self.body(pixel_values).pooler_output)
        return {"loss": nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


class Average(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **_):
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **_):
        for mine, new in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(new.detach(), 0.01)


class Pictures(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"pixel_values": torch.rand(3, 256, 256, generator=g), "labels": i % 100}


model, average = Classifier(), Average()
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=48, per_device_eval_batch_size=64, max_steps=6, bf16=True, bf16_full_eval=True, dataloader_num_workers=2, dataloader_pin_memory=True, report_to="none", save_strategy="no", logging_steps=2, optim="adamw_torch")
t = Trainer(model=model, args=args, train_dataset=Pictures(336), eval_dataset=Pictures(128), callbacks=[average])
t.train()
Trainer(model=average.model, args=args, eval_dataset=Pictures(128)).evaluate()
