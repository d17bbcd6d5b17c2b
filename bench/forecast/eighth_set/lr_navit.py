"""vit-pytorch: pictures of many sizes in one row (NaViT), then MaxViT and CaiT with hard labels distilled from a ResNet, each a few steps."""
import torch
import torchvision
from vit_pytorch.cait import CaiT
from vit_pytorch.distill import DistillableViT, DistillWrapper
from vit_pytorch.na_vit import NaViT
torch.manual_seed(0)
v = NaViT(image_size=256, patch_size=16, num_classes=1000, dim=384, depth=6, heads=6, mlp_dim=1536, dropout=0.1, emb_dropout=0.1, token_dropout_prob=0.1).cuda()
optim = torch.optim.Adam(v.parameters(), lr=3e-4)
for step in range(4):
    images = [torch.randn(3, 16 * (4 + (7 * i + step) % 12), 16 * (4 + (5 * i) % 12)).cuda() for i in range(24)]
    loss = torch.nn.functional.cross_entropy(v(images, group_images=True, group_max_seq_len=256), torch.randint(0, 1000, (24,)).cuda())
    loss.backward()
    optim.step()
    optim.zero_grad()
teacher = torchvision.models.resnet34().cuda()
student = DistillableViT(image_size=224, patch_size=32, num_classes=1000, dim=512, depth=6, heads=8, mlp_dim=1024, dropout=0.1, emb_dropout=0.1).cuda()
distiller = DistillWrapper(student=student, teacher=teacher, temperature=3, alpha=0.5, hard=False).cuda()
cait = CaiT(image_size=224, patch_size=32, num_classes=1000, dim=512, depth=6, cls_depth=2, heads=8, mlp_dim=1024, dropout=0.1, emb_dropout=0.1, layer_dropout=0.05).cuda()
optim = torch.optim.AdamW([*distiller.parameters(), *cait.parameters()], lr=3e-4)
for step in range(4):
    images, labels = torch.randn(24, 3, 224, 224).cuda(), torch.randint(0, 1000, (24,)).cuda()
    loss = distiller(images, labels) + torch.nn.functional.cross_entropy(cait(images), labels)
    loss.backward()
    optim.step()
    optim.zero_grad()
print(loss.item())
