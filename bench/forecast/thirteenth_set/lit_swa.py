"""Lightning: a WaveNet-like classifier of sounds, StochasticWeightAveraging, accumulation that grows, early stopping, resumed from its last checkpoint, tested."""
import tempfile
import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint, StochasticWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sounds(L.LightningModule):
    def __init__(self, channels=128, layers=12, labels=35):
        super().__init__()
        self.save_hyperparameters()
        self.into = nn.Conv1d(1, channels, 9, 4, 4)
        self.gates = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 3, padding=2 ** (i % 6), dilation=2 ** (i % 6)) for i in range(layers))
        self.back = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(channels, 256), nn.SiLU(), nn.Dropout(0.2), nn.Linear(256, labels))

    def forward(self, x):
        x = self.into(x[:, None])
        for gate, back, norm in zip(self.gates, self.back, self.norms):
            a, b = gate(norm(x)).chunk(2, 1)
            x = x + back(a.tanh() * b.sigmoid())
        return self.head(x.mean(-1))

    def training_step(self, batch, i):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=0.1)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, i):
        out = self(batch[0])
        self.log("val", nn.functional.cross_entropy(out, batch[1]))
        self.log("right", (out.argmax(1) == batch[1]).float().mean())

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.NAdam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


L.seed_everything(0)
folder = tempfile.mkdtemp()
sounds = TensorDataset(torch.randn(320, 8192), torch.randint(0, 35, (320,)))
loaders = DataLoader(sounds, batch_size=32, shuffle=True), DataLoader(sounds, batch_size=64)


def trainer(epochs, more=()):
    return L.Trainer(accelerator="gpu", devices=1, max_epochs=epochs, precision="16-mixed", gradient_clip_val=0.5, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, limit_train_batches=6, limit_val_batches=2,
                     callbacks=[EarlyStopping("val", patience=5), ModelCheckpoint(folder, save_last=True, monitor="val"), *more])


trainer(2, [GradientAccumulationScheduler({0: 1, 1: 2})]).fit(Sounds(), *loaders)
second = trainer(4, [StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=3)])
model = Sounds()
second.fit(model, *loaders, ckpt_path=f"{folder}/last.ckpt")
print(second.test(model, loaders[1], verbose=False))
