"""Lightning with optimization by hand: two optimizers toggled, gradients summed by a schedule of its own, bf16-mixed, weights averaged by a callback,
validation that draws pictures, a last partial batch."""
import tempfile
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
class Gan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(100, 256 * 16), nn.Unflatten(1, (256, 4, 4)), *[l for i, o in ((256, 192), (192, 96), (96, 48)) for l in (nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True))], nn.Conv2d(48, 3, 3, padding=1), nn.Tanh())
        self.d = nn.Sequential(*[l for i, o in ((3, 48), (48, 96), (96, 192)) for l in (nn.utils.parametrizations.spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2, True))], nn.Flatten(), nn.Linear(192 * 16, 1))
    def training_step(self, batch, i):
        x, = batch
        go, do = self.optimizers()
        z = torch.randn(len(x), 100, device=self.device)
        self.toggle_optimizer(do)
        loss = F.relu(1 - self.d(x)).mean() + F.relu(1 + self.d(self.g(z).detach())).mean()
        do.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(do, 1.0, "norm")
        do.step()
        self.untoggle_optimizer(do)
        self.toggle_optimizer(go)
        gl = -self.d(self.g(z)).mean() / 2
        self.manual_backward(gl)
        if i % 2:
            go.step()
            go.zero_grad()
        self.untoggle_optimizer(go)
        self.log_dict({"d": loss, "g": gl}, prog_bar=False)
    def validation_step(self, batch, i):
        self.log("v", self.d(self.g(torch.randn(64, 100, device=self.device))).mean())
    def configure_optimizers(self):
        return [torch.optim.Adam(self.g.parameters(), 2e-4, (0.0, 0.9)), torch.optim.Adam(self.d.parameters(), 4e-4, (0.0, 0.9))], []
def main():
    L.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(600, 3, 32, 32))
    trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tempfile.mkdtemp(),
                        callbacks=[L.pytorch.callbacks.EMAWeightAveraging(decay=0.99)] if hasattr(L.pytorch.callbacks, "EMAWeightAveraging") else [], num_sanity_val_steps=1)
    trainer.fit(Gan(), DataLoader(data, 128, num_workers=2, persistent_workers=True, pin_memory=True), DataLoader(data, 300))
    print(trainer.callback_metrics)
if __name__ == "__main__":
    main()
