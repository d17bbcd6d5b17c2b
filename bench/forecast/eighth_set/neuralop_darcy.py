"""neuraloperator: its Trainer over a Fourier operator, H1 loss, its own AdamW for complex weights, evaluation on two resolutions."""
import torch
from neuralop import H1Loss, LpLoss, Trainer
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.models import FNO
from neuralop.training import AdamW
torch.manual_seed(0)
class Fields(torch.utils.data.Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return {"x": torch.randn(1, self.size, self.size), "y": torch.randn(1, self.size, self.size)}
load = lambda n, size: torch.utils.data.DataLoader(Fields(n, size), batch_size=16)
model = FNO(n_modes=(24, 24), in_channels=1, out_channels=1, hidden_channels=48, projection_channel_ratio=2, n_layers=4).cuda()
optimizer = AdamW(model.parameters(), lr=8e-3, weight_decay=1e-4)
trainer = Trainer(model=model, n_epochs=2, device="cuda", data_processor=DefaultDataProcessor().to("cuda"), wandb_log=False, eval_interval=1, use_distributed=False, verbose=False)
trainer.train(train_loader=load(64, 64), test_loaders={64: load(16, 64), 128: load(16, 128)}, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4), regularizer=False,
              training_loss=H1Loss(d=2), eval_losses={"h1": H1Loss(d=2), "l2": LpLoss(d=2, p=2)})
