"""Trains a transformers model under Lightning's Trainer, with validation."""
import argparse
import tempfile

import pytorch_lightning as pl
import torch
from configs import config
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt2")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--precision", default="bf16-mixed")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--no-validation", action="store_true")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()


class Language(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.float32)

    def training_step(self, batch, _):
        loss = self.model(input_ids=batch[0], labels=batch[0]).loss
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("validation", self.model(input_ids=batch[0], labels=batch[0]).loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


pl.seed_everything(0)
model = Language()
data = torch.utils.data.TensorDataset(torch.randint(model.model.config.vocab_size, (256, a.len)))
loader = torch.utils.data.DataLoader(data, batch_size=a.batch)
held_out = torch.utils.data.DataLoader(torch.utils.data.Subset(data, range(2 * a.batch)), batch_size=a.batch)
with tempfile.TemporaryDirectory() as folder:
    trainer = pl.Trainer(max_steps=a.steps, accelerator="gpu", devices=1, precision=a.precision, accumulate_grad_batches=a.accumulate, gradient_clip_val=1.0,
                         default_root_dir=folder, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         val_check_interval=4 * a.accumulate, limit_val_batches=0.0 if a.no_validation else 1.0)
    trainer.fit(model, loader, held_out)
