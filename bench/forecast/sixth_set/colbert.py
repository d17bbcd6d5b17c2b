"""Late interaction as ColBERT does: every word of a query against every word of each passage, maxima summed, in-batch negatives and a teacher's scores; BERT by hand, FP32 with tf32."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
class Tower(nn.Module):
    def __init__(self, d=312):
        super().__init__()
        self.words, self.places = nn.Embedding(11003, d, padding_idx=0), nn.Embedding(300, d)
        self.body, self.out = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 6, 1200, 0.1, "gelu", batch_first=True), 4, enable_nested_tensor=False), nn.Linear(d, 96, bias=False)
    def forward(self, ids):
        x = self.body(self.words(ids) + self.places.weight[:ids.shape[1]], src_key_padding_mask=ids == 0)
        return F.normalize(self.out(x), dim=-1) * (ids != 0)[..., None]
model = Tower().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
def padded(n, a, b):
    return nn.utils.rnn.pad_sequence([torch.randint(1, 11003, (int(m),)) for m in torch.randint(a, b, (n,))], batch_first=True).cuda()
for _ in range(5):
    q, p = padded(14, 10, 33), padded(42, 60, 181)
    a, b = model(q), model(p)
    scores = torch.einsum("qid,pjd->qpij", a, b).masked_fill((p == 0)[None, :, None], -1e4).amax(-1).sum(-1)
    own = scores.view(14, 14, 3).diagonal(dim1=0, dim2=1).T
    loss = F.cross_entropy(scores, torch.arange(14, device="cuda") * 3) + F.kl_div(own.log_softmax(-1), torch.rand(14, 3, device="cuda").softmax(-1), reduction="batchmean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item())
with torch.no_grad():
    index = torch.cat([model(padded(50, 60, 181))[:, :60] for _ in range(5)]).half()
    print(torch.einsum("qid,pjd->qpij", model(q).half(), index).amax(-1).sum(-1).topk(9).values.shape)
