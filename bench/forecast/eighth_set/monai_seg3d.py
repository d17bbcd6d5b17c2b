"""MONAI as its spleen tutorial has it: patches of volumes, a 3-D U-Net, Dice and cross entropy, mixed precision, sliding windows in the evaluation, Dice by class."""
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import AsDiscrete, Compose, EnsureTyped, RandCropByPosNegLabeld, RandFlipd, RandGaussianNoised, ScaleIntensityd
torch.manual_seed(0)
volumes = [{"image": torch.rand(1, 112, 112, 96), "label": (torch.rand(1, 112, 112, 96) > 0.7).float()} for _ in range(3)]
train = Compose([ScaleIntensityd("image"), RandCropByPosNegLabeld(["image", "label"], label_key="label", spatial_size=(64, 64, 64), pos=1, neg=1, num_samples=4), RandFlipd(["image", "label"], prob=0.5, spatial_axis=0), RandGaussianNoised("image"), EnsureTyped(["image", "label"])])
model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64, 128, 256), strides=(2, 2, 2, 2), num_res_units=2, norm="batch").cuda()
loss_of, optimizer, scaler = DiceCELoss(to_onehot_y=True, softmax=True), torch.optim.Adam(model.parameters(), 1e-4), torch.amp.GradScaler("cuda")
dice, post, post_label = DiceMetric(include_background=False, reduction="mean"), AsDiscrete(argmax=True, to_onehot=2), AsDiscrete(to_onehot=2)
for epoch in range(2):
    model.train()
    for batch in DataLoader(Dataset(volumes, train), batch_size=1):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(model(batch["image"].cuda()), batch["label"].cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    model.eval()
    with torch.no_grad():
        for v in volumes[:2]:
            image, label = v["image"][None].cuda(), v["label"][None].cuda()
            out = sliding_window_inference(image, (64, 64, 64), 4, model, overlap=0.5)
            dice(y_pred=[post(i) for i in decollate_batch(out)], y=[post_label(i) for i in decollate_batch(label)])
    print(dice.aggregate().item())
    dice.reset()
