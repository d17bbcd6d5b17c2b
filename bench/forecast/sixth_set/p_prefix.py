"""peft: prefix tuning with its projection on a small Qwen 3, gradients accumulated, padded on the left, then words by sampling."""
import torch
from peft import PrefixTuningConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
model = Qwen3ForCausalLM(Qwen3Config(vocab_size=21001, hidden_size=448, intermediate_size=1210, num_hidden_layers=6, num_attention_heads=7, num_key_value_heads=7, head_dim=64,
                                     pad_token_id=0, eos_token_id=None, bos_token_id=None))
model = get_peft_model(model.to(torch.bfloat16), PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=23, prefix_projection=True, encoder_hidden_size=300)).cuda()
model.print_trainable_parameters()
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-3)
for step in range(4):
    for _ in range(2):
        ids = torch.randint(1, 21001, (6, 333))
        mask = torch.ones_like(ids)
        for row, pad in enumerate((0, 20, 111, 3, 77, 0)):
            mask[row, :pad] = 0
        ids, mask = ids.cuda(), mask.cuda()
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
model.eval()
with torch.no_grad():
    print(model.generate(input_ids=ids[:, :40], attention_mask=mask[:, :40], max_new_tokens=30, do_sample=True, top_p=0.9).shape)
