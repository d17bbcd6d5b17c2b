"""A card of 24 GiB by set_per_process_memory_fraction: a T5 of 0.8 billion in FP32 whose batch is halved when memory runs out, accumulated to the same size, Adafactor."""
import torch
from torch.optim import Adafactor
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(24 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
with torch.device("cuda"):
    model = T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=1024, d_kv=64, d_ff=2816, num_layers=24, num_heads=16, feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0))
model.train()
optimizer = Adafactor(model.parameters(), lr=1e-3)
micro = 32
for step in range(3):
    ids, labels = torch.randint(1, 32000, (32, 512)), torch.randint(1, 32000, (32, 128))
    done = 0
    while done < 32:
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids[done:done + micro].cuda(), labels=labels[done:done + micro].cuda()).loss * micro / 32
            loss.backward()
            done += micro
        except torch.cuda.OutOfMemoryError:
            loss = None
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            micro //= 2
            done = 0
            print("micro-batch", micro)
    optimizer.step()
    optimizer.zero_grad()
    print(step, micro, loss.item())
