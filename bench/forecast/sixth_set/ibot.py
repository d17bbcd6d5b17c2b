"""DINOv2's training by hand: a student and a teacher of timm's ViT, large and small views, masked patches chosen by index, Sinkhorn's centring, KoLeo, a cosine of momentum."""
import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
make = lambda rate: timm.create_model("vit_small_patch16_224", num_classes=0, dynamic_img_size=True, drop_path_rate=rate, depth=6).cuda()
class Head(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(384, 1024), nn.GELU(), nn.Linear(1024, 200), nn.Linear(200, 9001, bias=False))
    def forward(self, x):
        return self[3](F.normalize(self[2](self[1](self[0](x))), dim=-1))
student, teacher, hs, ht = make(0.2), make(0.0), Head().cuda(), Head().cuda()
teacher.load_state_dict(student.state_dict()), ht.load_state_dict(hs.state_dict())
word = nn.Parameter(torch.zeros(384, device="cuda"))
def look(net, x, mask=None):
    x = net.patch_embed(x)
    if mask is not None:
        x = torch.where(mask.view(x.shape[:3])[..., None], word.to(x.dtype), x)
    return net.norm(net.blocks(net._pos_embed(x)))
@torch.no_grad()
def balance(logits, turns=3):
    q = (logits.float() / 0.07).exp().T
    q /= q.sum()
    for _ in range(turns):
        q /= q.sum(1, keepdim=True) * len(q)
        q /= q.sum(0, keepdim=True) * q.shape[1]
    return (q * q.shape[1]).T
optimizer = torch.optim.AdamW([*student.parameters(), *hs.parameters(), word], 1e-4)
cross = lambda t, s: -(t * (s.float() / 0.1).log_softmax(-1)).sum(-1).mean()
for step in range(4):
    large, small = torch.randn(22, 3, 160, 160, device="cuda"), torch.randn(66, 3, 80, 80, device="cuda")
    mask = torch.zeros(22, 100, dtype=torch.bool)
    for row in mask[::2]:
        row[torch.randperm(100)[:37]] = True
    chosen = mask.flatten().nonzero().flatten().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            t = look(teacher, large)
            tc, tp = balance(ht(t[:, 0])), balance(ht(t[:, 1:].flatten(0, 1)[chosen]))
        s, few = look(student, large, mask.cuda()), look(student, small)
        sc, sp, sl = hs(s[:, 0]), hs(s[:, 1:].flatten(0, 1)[chosen]), hs(few[:, 0])
    near = F.normalize(s[:, 0].float(), dim=-1)
    far = (near @ near.T).fill_diagonal_(-1).argmax(1)
    loss = cross(tc, sc.roll(11, 0)) + cross(tp, sp) + sum(cross(tc, a) for a in sl.chunk(3)) - 0.1 * (near - near[far]).norm(dim=-1).add(1e-8).log().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        torch._foreach_lerp_([*teacher.parameters(), *ht.parameters()], [p.detach() for p in (*student.parameters(), *hs.parameters())], 0.01)
    print(loss.item())
