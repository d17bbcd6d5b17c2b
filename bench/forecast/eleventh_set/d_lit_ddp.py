"""Lightning by torchrun on two cards: a TransformerEncoder that fills in words, strategy ddp, bf16-mixed, accumulated, validated, a checkpoint on the way."""
# two cards
import tempfile
import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Filler(L.LightningModule):
    def __init__(self, vocab=12000, d=640):
        super().__init__()
        self.embed, self.where = nn.Embedding(vocab, d), nn.Embedding(256, d)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 10, 2560, activation="gelu", batch_first=True, norm_first=True), 8, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocab)
        self.head.weight = self.embed.weight

    def loss(self, ids):
        hidden = ids.clone()
        hidden[:, ::7] = 1
        scores = self.head(self.body(self.embed(hidden) + self.where.weight[:ids.shape[1]])[:, ::7])
        return nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, ::7].flatten())

    def training_step(self, batch, i):
        loss = self.loss(batch[0])
        self.log("loss", loss, prog_bar=False, sync_dist=True)
        return loss

    def validation_step(self, batch, i):
        self.log("val", self.loss(batch[0]), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10), "interval": "step"}}


L.seed_everything(0)
folder = tempfile.mkdtemp()
data = TensorDataset(torch.randint(2, 12000, (512, 256)))
trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", precision="bf16-mixed", max_steps=5, accumulate_grad_batches=2, gradient_clip_val=1.0, limit_val_batches=2, val_check_interval=4, default_root_dir=folder, logger=CSVLogger(folder), enable_progress_bar=False, log_every_n_steps=1,
                    callbacks=[ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1), LearningRateMonitor()])
trainer.fit(Filler(), DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=16))
print(trainer.global_step)
torch.distributed.destroy_process_group()
