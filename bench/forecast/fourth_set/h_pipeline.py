"""A pipeline that writes text in batches, sampled."""
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import OlmoConfig, OlmoForCausalLM, PreTrainedTokenizerFast, pipeline
torch.manual_seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(3000)} | {"<pad>": 3000, "<eos>": 3001, "<unk>": 3002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
model = OlmoForCausalLM(OlmoConfig(vocab_size=3072, hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, pad_token_id=3000,
                                   eos_token_id=3001)).to(torch.bfloat16)
write = pipeline("text-generation", model=model, tokenizer=tokenizer, device=0)
prompts = [" ".join(f"w{(i * 37 + j) % 3000}" for j in range(20 + 9 * i)) for i in range(12)]
write(prompts, batch_size=4, max_new_tokens=32, min_new_tokens=32, do_sample=True, temperature=0.8, top_k=40, repetition_penalty=1.1)
