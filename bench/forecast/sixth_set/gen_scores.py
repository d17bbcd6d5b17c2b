"""generate that keeps scores, attentions and hidden states of all words, several answers a prompt, ragged prompts, processors of logits, then a pass that scores the answers."""
import torch
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM
torch.manual_seed(0)
model = GPTBigCodeForCausalLM(GPTBigCodeConfig(vocab_size=24001, n_positions=700, n_embd=576, n_layer=6, n_head=9, pad_token_id=0, bos_token_id=None, eos_token_id=None,
                                               attn_implementation="eager")).cuda().half().eval()
ids = torch.randint(1, 24001, (4, 155))
mask = torch.ones_like(ids)
for row, pad in enumerate((0, 33, 90, 5)):
    mask[row, :pad], ids[row, :pad] = 0, 0
ids, mask = ids.cuda(), mask.cuda()
with torch.no_grad():
    for turn in range(1):
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=35, do_sample=True, num_return_sequences=5, repetition_penalty=1.2, no_repeat_ngram_size=3, top_k=40, typical_p=0.9,
                             return_dict_in_generate=True, output_scores=True, output_hidden_states=True, output_attentions=True)
        print(out.sequences.shape, len(out.scores), model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True).shape)
    again = model(out.sequences, attention_mask=torch.nn.functional.pad(mask.repeat_interleave(5, 0), (0, 35), value=1)).logits.float().log_softmax(-1)
    print(again[:, :-1].gather(2, out.sequences[:, 1:, None]).mean())
