"""Perplexity of a long text by a window that moves 512 words at a time, as transformers' page has it, then of answers to choose from in padded batches; a StableLM."""
import torch
from transformers import StableLmConfig, StableLmForCausalLM

torch.manual_seed(0)
config = StableLmConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=12, num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=4096, pad_token_id=0)
with torch.device("cuda"):
    torch.set_default_dtype(torch.float16)
    model = StableLmForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
text = torch.randint(1, 32000, (1, 14000))
total, count, before = 0.0, 0, 0
for begin in range(0, text.size(1), 512):
    end = min(begin + 2048, text.size(1))
    new = end - before
    ids = text[:, begin:end].to("cuda")
    target = ids.clone()
    target[:, :-new] = -100
    with torch.no_grad():
        loss = model(ids, labels=target).loss
    valid = (target != -100).sum().item()
    total += loss.float() * (valid - 1)
    count += valid - 1
    before = end
    if end == text.size(1):
        break
print(torch.exp(total / count).item())
asked = [(torch.randint(1, 32000, (int(n),)), torch.randint(1, 32000, (int(m),))) for n, m in zip(torch.randint(60, 700, (64,)), torch.randint(2, 40, (64,)))]
asked.sort(key=lambda pair: -len(pair[0]) - len(pair[1]))
right = []
with torch.no_grad():
    for first in range(0, 64, 16):
        part = asked[first:first + 16]
        longest = max(len(a) + len(b) for a, b in part)
        ids = torch.stack([torch.nn.functional.pad(torch.cat(pair), (0, longest - len(pair[0]) - len(pair[1]))) for pair in part]).cuda()
        logs = torch.log_softmax(model(ids).logits.float(), -1)
        for row, (a, b) in enumerate(part):
            said = logs[row, len(a) - 1:len(a) + len(b) - 1]
            one = said.gather(1, b[:, None].cuda()).sum()
            right.append((one.item(), bool((said.argmax(-1) == b.cuda()).all())))
print(len(right), sum(hit for _, hit in right))
