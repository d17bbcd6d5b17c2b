"""MONAI's SwinUNETR with checkpointed blocks and its SupervisedTrainer (ignite's engine), handlers for checkpoints and validation with SimpleInferer, bf16."""
import tempfile
import torch
from monai.data import DataLoader
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import CheckpointSaver, LrScheduleHandler, MeanDice, ValidationHandler, from_engine
from monai.inferers import SimpleInferer
from monai.losses import DiceFocalLoss
from monai.networks.nets import SwinUNETR
from monai.transforms import AsDiscreted, Compose
torch.manual_seed(0)
rows = [{"image": torch.rand(1, 64, 64, 64), "label": torch.randint(0, 3, (1, 64, 64, 64)).float()} for _ in range(6)]
net = SwinUNETR(in_channels=1, out_channels=3, feature_size=24, use_checkpoint=True).cuda()
opt = torch.optim.AdamW(net.parameters(), 1e-4, weight_decay=1e-5)
post = Compose([AsDiscreted(keys=("pred", "label"), argmax=(True, False), to_onehot=3)])
evaluator = SupervisedEvaluator(device=torch.device("cuda"), val_data_loader=DataLoader(rows[:2], batch_size=1), network=net, inferer=SimpleInferer(), postprocessing=post,
                                key_val_metric={"dice": MeanDice(include_background=True, output_transform=from_engine(["pred", "label"]))}, amp=True)
trainer = SupervisedTrainer(device=torch.device("cuda"), max_epochs=2, train_data_loader=DataLoader(rows, batch_size=2), network=net, optimizer=opt, loss_function=DiceFocalLoss(to_onehot_y=True, softmax=True), inferer=SimpleInferer(), amp=True,
                            train_handlers=[LrScheduleHandler(torch.optim.lr_scheduler.StepLR(opt, 2), print_lr=False), ValidationHandler(1, evaluator), CheckpointSaver(tempfile.mkdtemp(), {"net": net, "opt": opt}, save_final=True)])
trainer.run()
print(evaluator.state.metrics)
