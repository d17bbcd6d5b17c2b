"""Lightning: three folds of a network that tells sounds by log-mel pictures (EfficientNet of torchvision), fp16-mixed, profiled, checkpoints, rates by OneCycle, predict."""
import tempfile
import lightning as L
import torch
import torchvision
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Subset, TensorDataset


class Sounds(L.LightningModule):
    def __init__(self, labels=50, steps=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.efficientnet_b0(weights=None, num_classes=labels)
        self.net.features[0][0] = torch.nn.Conv2d(1, 32, 3, 2, 1, bias=False)
        self.right = []

    def training_step(self, batch, i):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=0.1)
        self.log("loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, i):
        said = self.net(batch[0])
        self.right.append((said.argmax(1) == batch[1]).float())
        self.log("val_loss", torch.nn.functional.cross_entropy(said, batch[1]))

    def on_validation_epoch_end(self):
        self.log("right", torch.cat(self.right).mean())
        self.right.clear()

    def predict_step(self, batch, i):
        return self.net(batch[0]).softmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.02)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=self.hparams.steps), "interval": "step"}}


L.seed_everything(0)
data = TensorDataset(torch.randn(192, 1, 128, 216), torch.randint(0, 50, (192,)))
folder = tempfile.mkdtemp()
for fold in range(3):
    held = list(range(fold * 64, fold * 64 + 64))
    train = [i for i in range(192) if i not in held]
    model = Sounds()
    best = ModelCheckpoint(monitor="val_loss", dirpath=f"{folder}/{fold}", save_last=True)
    trainer = L.Trainer(max_epochs=2, precision="16-mixed", limit_train_batches=4, callbacks=[best, LearningRateMonitor()], logger=CSVLogger(folder), enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0, log_every_n_steps=1, num_sanity_val_steps=0)
    trainer.fit(model, DataLoader(Subset(data, train), batch_size=32, shuffle=True), DataLoader(Subset(data, held), batch_size=64))
    said = trainer.predict(model, DataLoader(Subset(data, held), batch_size=32), ckpt_path="last")
print(torch.cat(said).shape)
