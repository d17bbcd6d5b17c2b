"""A reward model by hand: Qwen 2 for one number with LoRA, its score trained in full, chosen and rejected texts in one batch, margins and centring,
checkpointed with re-entry, bf16 weights."""
import torch
import torch.nn.functional as F
from peft import LoraConfig, TaskType, get_peft_model
from transformers import Qwen2Config, Qwen2ForSequenceClassification
torch.manual_seed(0)
model = Qwen2ForSequenceClassification(Qwen2Config(vocab_size=20000, hidden_size=640, intermediate_size=1920, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2, num_labels=1, pad_token_id=0)).bfloat16().cuda()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, r=16, lora_alpha=32, target_modules="all-linear", modules_to_save=["score"]))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4)
def batch(n, width):
    ids = torch.randint(1, 20000, (2 * n, width))
    for row in range(2 * n):
        ids[row, width - int(torch.randint(0, width // 2, ())):] = 0
    return ids.cuda(), (ids != 0).long().cuda()
for step in range(6):
    ids, mask = batch(6 if step < 5 else 3, 260 + 40 * (step % 3))
    good, bad = model(input_ids=ids, attention_mask=mask).logits[:, 0].float().chunk(2)
    loss = -F.logsigmoid(good - bad - torch.rand_like(good)).mean() + 0.01 * (good + bad).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item(), (good > bad).float().mean().item())
model.eval()
with torch.no_grad():
    ids, mask = batch(10, 400)
    print(model(input_ids=ids, attention_mask=mask).logits.shape)
