"""DETR by hand: a ResNet-18 of torchvision with frozen norms, an encoder and a decoder, boxes matched by scipy's Hungarian method on the host, generalised IoU, losses of each layer."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torchvision.models import resnet18
from torchvision.ops import FrozenBatchNorm2d, box_convert, generalized_box_iou
torch.manual_seed(0)
class Detr(nn.Module):
    def __init__(self, d=232, queries=67, classes=21):
        super().__init__()
        body = resnet18(norm_layer=FrozenBatchNorm2d)
        self.body = nn.Sequential(*list(body.children())[:-2])
        self.squeeze, self.queries, self.rows, self.columns = nn.Conv2d(512, d, 1), nn.Parameter(torch.rand(queries, d)), nn.Parameter(torch.rand(50, d // 2)), nn.Parameter(torch.rand(50, d // 2))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 8, 1000, 0.1, batch_first=True), 3, enable_nested_tensor=False)
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(d, 8, 1000, 0.1, batch_first=True) for _ in range(3))
        self.norm, self.kind, self.box = nn.LayerNorm(d), nn.Linear(d, classes + 1), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))
    def forward(self, x, mask):
        h = self.squeeze(self.body(x))
        m = F.interpolate(mask[:, None].float(), size=h.shape[2:])[:, 0].bool().flatten(1)
        place = torch.cat((self.rows[:h.shape[2], None].expand(-1, h.shape[3], -1), self.columns[None, :h.shape[3]].expand(h.shape[2], -1, -1)), -1).flatten(0, 1)
        memory = self.encoder(h.flatten(2).transpose(1, 2) + place, src_key_padding_mask=m)
        t, out = self.queries.expand(len(x), -1, -1), []
        for layer in self.decoder:
            t = layer(t, memory, memory_key_padding_mask=m)
            out.append((self.kind(self.norm(t)), self.box(self.norm(t)).sigmoid()))
        return out
def match(kinds, boxes, targets):
    with torch.no_grad():
        found = []
        for k, b, t in zip(kinds.softmax(-1), boxes, targets):
            cost = 5 * torch.cdist(b, t["boxes"], p=1) - k[:, t["labels"]] - 2 * generalized_box_iou(box_convert(b, "cxcywh", "xyxy"), box_convert(t["boxes"], "cxcywh", "xyxy"))
            found.append([torch.as_tensor(i) for i in linear_sum_assignment(cost.cpu().nan_to_num())])
        return found
model = Detr().cuda()
optimizer = torch.optim.AdamW([{"params": model.body.parameters(), "lr": 1e-5}, {"params": [p for n, p in model.named_parameters() if not n.startswith("body")]}], 1e-4)
for step in range(5):
    sizes = [(333, 402), (256, 480), (391, 390), (200, 470)]
    x, mask = torch.zeros(4, 3, 391, 480), torch.ones(4, 391, 480, dtype=torch.bool)
    for i, (h, w) in enumerate(sizes):
        x[i, :, :h, :w], mask[i, :h, :w] = torch.randn(3, h, w), False
    targets = [{"labels": torch.randint(0, 21, (n,)).cuda(), "boxes": torch.rand(n, 4).mul(0.4).add(0.05).cuda()} for n in (3, 11, 1, 7)]
    total = 0
    for kinds, boxes in model(x.cuda(), mask.cuda()):
        pairs = match(kinds, boxes, targets)
        goal = torch.full(kinds.shape[:2], 21, device="cuda")
        for i, (a, b) in enumerate(pairs):
            goal[i, a.cuda()] = targets[i]["labels"][b.cuda()]
        chosen = torch.cat([boxes[i, a] for i, (a, _) in enumerate(pairs)])
        true = torch.cat([t["boxes"][b] for t, (_, b) in zip(targets, pairs)])
        weight = torch.ones(22, device="cuda")
        weight[21] = 0.1
        iou = torch.diag(generalized_box_iou(box_convert(chosen, "cxcywh", "xyxy"), box_convert(true, "cxcywh", "xyxy")))
        total = total + F.cross_entropy(kinds.transpose(1, 2), goal, weight) + 5 * F.l1_loss(chosen, true) + 2 * (1 - iou).mean()
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    print(total.item())
