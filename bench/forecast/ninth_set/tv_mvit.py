"""torchvision: MViT v2 on clips, mixup and cut-outs on the card, AdamW, bf16 by autocast, the transforms' v2 in workers with pinned memory."""
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.models.video import mvit_v2_s
from torchvision.transforms import v2

torch.manual_seed(0)


class Clips(Dataset):
    def __init__(self):
        self.change = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.45] * 3, [0.225] * 3)])

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return self.change(torch.randint(0, 256, (16, 3, 224, 224), dtype=torch.uint8)).transpose(0, 1).contiguous(), i % 50


if __name__ == "__main__":
    loader = DataLoader(Clips(), batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True, drop_last=True)
    model = mvit_v2_s(num_classes=50, stochastic_depth_prob=0.0).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for step, (clips, labels) in enumerate(loader):
        clips, labels = clips.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        n = torch.nn.functional.one_hot(labels, 50).float()
        weight = torch.rand((), device="cuda")
        clips, n = torch.lerp(clips, clips.flip(0), weight), torch.lerp(n, n.flip(0), weight)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(clips), n)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step == 4:
            break
