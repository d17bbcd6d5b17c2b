"""Lightning's Trainer: an autoencoder of convolutions in bf16-mixed, two batches accumulated, clipped, with validation and a scheduler."""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
class Auto(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 48, 4, 2, 1), nn.BatchNorm2d(48), nn.GELU(), nn.Conv2d(48, 96, 4, 2, 1), nn.BatchNorm2d(96), nn.GELU(),
                                     nn.Flatten(), nn.Linear(96 * 24 * 24, 200))
        self.decoder = nn.Sequential(nn.Linear(200, 96 * 24 * 24), nn.Unflatten(1, (96, 24, 24)), nn.ConvTranspose2d(96, 48, 4, 2, 1), nn.GELU(),
                                     nn.ConvTranspose2d(48, 3, 4, 2, 1))
    def training_step(self, batch, _):
        x, = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, _):
        x, = batch
        self.log("val", nn.functional.mse_loss(self.decoder(self.encoder(x)), x), sync_dist=True)
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-4, total_steps=40), "interval": "step"}}
torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.rand(330, 3, 96, 96)), batch_size=22, num_workers=2, shuffle=True)
valid = DataLoader(TensorDataset(torch.rand(70, 3, 96, 96)), batch_size=35)
trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
                    accelerator="gpu", devices=1, enable_progress_bar=False)
trainer.fit(Auto(), train, valid)
