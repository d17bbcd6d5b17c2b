"""TRL: supervised fine-tuning, examples packed, loss on completions."""
import tempfile
import random
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(2000)} | {"<pad>": 2000, "<eos>": 2001, "<unk>": 2002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
text = [" ".join(f"w{random.randrange(2000)}" for _ in range(random.randrange(20, 200))) for _ in range(200)]
model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8, pad_token_id=2000))
settings = SFTConfig(output_dir=tempfile.mkdtemp(), packing=True, packing_strategy="wrapped", max_length=512, per_device_train_batch_size=4, max_steps=5,
                     bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
SFTTrainer(model=model, args=settings, train_dataset=Dataset.from_dict({"text": text}), processing_class=tokenizer).train()
