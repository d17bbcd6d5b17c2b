"""Lightning: the Tuner looks for a batch size by powers of two and for a learning rate; then 16-mixed with averaged weights, and predictions."""
import lightning as L
import torch
import torch.nn as nn
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.tuner import Tuner
from torch.utils.data import DataLoader, TensorDataset
class Mix(L.LightningModule):
    def __init__(self, batch_size=16, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(3, 200, 7, 7)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(200, 200, 5, padding=2, groups=200), nn.GELU(), nn.BatchNorm2d(200), nn.Conv2d(200, 200, 1), nn.GELU(),
                                                    nn.BatchNorm2d(200)) for _ in range(6)))
        self.head = nn.Linear(200, 37)
    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))
    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=0.1)
        self.log("loss", loss)
        return loss
    def predict_step(self, batch, _):
        return self(batch[0]).softmax(-1)
    def train_dataloader(self):
        return DataLoader(data, batch_size=self.hparams.batch_size, shuffle=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr, momentum=0.9, nesterov=True)
torch.manual_seed(0)
data = TensorDataset(torch.rand(500, 3, 112, 112), torch.randint(0, 37, (500,)))
model = Mix()
trainer = L.Trainer(max_epochs=3, precision="16-mixed", gradient_clip_val=0.5, gradient_clip_algorithm="value", logger=False, enable_checkpointing=False, accelerator="gpu", devices=1,
                    enable_progress_bar=False, callbacks=[StochasticWeightAveraging(1e-2, swa_epoch_start=1)])
tuner = Tuner(trainer)
print(tuner.scale_batch_size(model, mode="power", steps_per_trial=2, init_val=16, max_trials=3))
tuner.lr_find(model, num_training=8)
trainer.fit(model)
print(len(trainer.predict(model, DataLoader(data, batch_size=90))))
