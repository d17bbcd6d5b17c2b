"""IA3 on a small T5, by autocast."""
import torch
from peft import IA3Config, TaskType, get_peft_model
from transformers import T5Config, T5ForConditionalGeneration
torch.manual_seed(0)
model = T5ForConditionalGeneration(T5Config(vocab_size=16000, d_model=512, d_ff=1024, num_layers=6, num_heads=8, decoder_start_token_id=0)).cuda()
model = get_peft_model(model, IA3Config(task_type=TaskType.SEQ_2_SEQ_LM, target_modules=["k", "v", "wo"], feedforward_modules=["wo"]))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(5):
    source = torch.randint(2, 16000, (8, 256), device="cuda")
    target = torch.randint(2, 16000, (8, 64), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=source, labels=target).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
