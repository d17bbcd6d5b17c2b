"""P-tuning with its encoder of prompts, classification with BERT."""
import torch
from peft import PromptEncoderConfig, TaskType, get_peft_model
from transformers import BertConfig, BertForSequenceClassification
torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=12000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048,
                                                 num_labels=4))
model = get_peft_model(model, PromptEncoderConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=16, encoder_hidden_size=256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    lengths = torch.randint(40, 200, (16,))
    ids = torch.randint(5, 12000, (16, int(lengths.max())))
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    labels = torch.randint(0, 4, (16,))
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(input_ids=ids.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
