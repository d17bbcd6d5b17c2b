"""segmentation-models-pytorch: U-Net++ on an EfficientNet with attention, then DeepLabV3+, FPN and a Segformer head, Dice and focal losses, its own metrics, mixed precision."""
import segmentation_models_pytorch as smp
import torch
torch.manual_seed(0)
for made in (lambda: smp.UnetPlusPlus("efficientnet-b1", encoder_weights=None, decoder_attention_type="scse", classes=6), lambda: smp.DeepLabV3Plus("resnet34", encoder_weights=None, classes=6),
             lambda: smp.Segformer("mit_b1", encoder_weights=None, classes=6), lambda: smp.FPN("tu-regnetx_004", encoder_weights=None, classes=6)):
    model = made().cuda()
    dice, focal = smp.losses.DiceLoss("multiclass"), smp.losses.FocalLoss("multiclass")
    optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-3), torch.amp.GradScaler("cuda")
    for step in range(4):
        x, y = torch.randn(6, 3, 192, 192).cuda(), torch.randint(0, 6, (6, 192, 192)).cuda()
        with torch.autocast("cuda", torch.float16):
            out = model(x)
            loss = dice(out, y) + focal(out, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        tp, fp, fn, tn = smp.metrics.get_stats(out.argmax(1).cpu(), y.cpu(), mode="multiclass", num_classes=6)
    print(smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro"))
    del model, optimizer, out, loss
