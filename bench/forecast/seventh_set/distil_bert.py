"""DistilBERT's way: a BERT in fp16 teaches a student made from every other layer, soft words at temperature 2, cosines of inner states, masked words,
packed to places that count (boolean index)."""
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM
torch.manual_seed(0)
config = dict(vocab_size=22000, hidden_size=480, num_attention_heads=8, intermediate_size=1920, max_position_embeddings=300)
teacher = BertForMaskedLM(BertConfig(num_hidden_layers=8, **config)).half().cuda().eval().requires_grad_(False)
student = BertForMaskedLM(BertConfig(num_hidden_layers=4, **config))
for i in range(4):
    student.bert.encoder.layer[i].load_state_dict({k: v.float() for k, v in teacher.bert.encoder.layer[2 * i].state_dict().items()})
student.cuda().train()
optimizer = torch.optim.AdamW(student.parameters(), 5e-4, eps=1e-6)
scaler = torch.amp.GradScaler()
for step in range(5):
    lengths = torch.randint(100, 257, (16,))
    ids, mask = torch.randint(1, 22000, (16, 256)), torch.arange(256)[None] < lengths[:, None]
    chosen = (torch.rand(16, 256) < 0.15) & mask
    labels = ids.masked_fill(~chosen, -100).cuda()
    ids, mask = ids.masked_fill(chosen, 4).cuda(), mask.cuda()
    with torch.no_grad():
        t = teacher(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
    with torch.autocast("cuda", torch.float16):
        s = student(input_ids=ids, attention_mask=mask.long(), labels=labels, output_hidden_states=True)
    a, b = s.logits[mask], t.logits[mask]
    kl = F.kl_div(F.log_softmax(a.float() / 2, -1), F.softmax(b.float() / 2, -1), reduction="batchmean") * 4
    x, y = s.hidden_states[-1][mask], t.hidden_states[-1][mask]
    loss = 5 * kl + 2 * s.loss + F.cosine_embedding_loss(x.float(), y.float(), torch.ones(len(x), device="cuda"))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(student.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
