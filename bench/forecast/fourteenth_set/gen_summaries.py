"""Summaries by a Pegasus in fp16: articles sorted by length into padded batches, eight beams, no three words twice, a penalty for length; then scored by the model."""
import torch
from transformers import PegasusConfig, PegasusForConditionalGeneration

torch.manual_seed(0)
config = PegasusConfig(vocab_size=18000, d_model=768, encoder_layers=8, decoder_layers=8, encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12, max_position_embeddings=1024, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1)
model = PegasusForConditionalGeneration(config).half().cuda().eval()
lengths = sorted(torch.randint(200, 1000, (32,)).tolist(), reverse=True)
losses = []
with torch.no_grad():
    for first in range(0, 32, 8):
        part = lengths[first:first + 8]
        ids = torch.zeros(8, max(part), dtype=torch.long)
        for row, n in enumerate(part):
            ids[row, :n] = torch.randint(4, 18000, (n,))
        ids = ids.cuda()
        said = model.generate(ids, attention_mask=(ids != 0).long(), num_beams=8, min_length=30, max_length=60, no_repeat_ngram_size=3, length_penalty=0.8, early_stopping=True)
        labels = said[:, 1:].masked_fill(said[:, 1:] == 0, -100)
        losses.append(model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss.float())
        print(said.shape)
print(torch.stack(losses).mean().item())
