"""kornia on the card: a chain of random changes to pictures and their masks, a small network trained on edges with SSIM, patches by HardNet, a homography fitted by gradients."""
import kornia
import kornia.augmentation as K
import torch
import torch.nn as nn
torch.manual_seed(0)
change = K.AugmentationSequential(K.RandomAffine(20.0, (0.1, 0.1), p=1.0), K.RandomPerspective(0.3, p=1.0), K.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=1.0), K.RandomGaussianBlur((5, 5), (0.1, 2.0), p=1.0), K.RandomElasticTransform(p=1.0),
                                  K.RandomErasing(p=1.0), K.RandomHorizontalFlip(p=0.5), data_keys=["input", "mask"], same_on_batch=False)
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1)).cuda()
hard = kornia.feature.HardNet(pretrained=False).cuda()
optimizer = torch.optim.Adam([*net.parameters(), *hard.parameters()], lr=1e-3)
for step in range(5):
    x, mask = torch.rand(8, 3, 192, 192).cuda(), torch.rand(8, 1, 192, 192).cuda()
    x, mask = change(x, mask)
    edges = kornia.filters.sobel(kornia.color.rgb_to_grayscale(x))
    a, b = hard(torch.rand(512, 1, 32, 32).cuda()), hard(torch.rand(512, 1, 32, 32).cuda())
    loss = kornia.losses.ssim_loss(net(x).sigmoid(), edges, 11) + kornia.losses.total_variation(net(x)).mean() * 1e-6 + (torch.cdist(a, b).diagonal() - 0.5).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
warp = kornia.geometry.transform.HomographyWarper(192, 192)
h = torch.eye(3).repeat(8, 1, 1).cuda().requires_grad_()
fit = torch.optim.Adam([h], lr=1e-3)
for turn in range(5):
    moved = kornia.geometry.warp_perspective(x.detach(), h, (192, 192))
    miss = (moved - x.detach()).abs().mean()
    fit.zero_grad()
    miss.backward()
    fit.step()
print(loss.item(), miss.item())
