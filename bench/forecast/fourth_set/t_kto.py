"""TRL: KTO, one answer good or bad."""
import tempfile
import random
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
try:
    from trl.experimental.kto import KTOConfig, KTOTrainer
except ImportError:
    from trl import KTOConfig, KTOTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(2000)} | {"<pad>": 2000, "<eos>": 2001, "<unk>": 2002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
def say(low, high):
    return " ".join(f"w{random.randrange(2000)}" for _ in range(random.randrange(low, high)))
rows = {"prompt": [say(10, 40) for _ in range(48)], "completion": [" " + say(20, 80) for _ in range(48)], "label": [i % 2 == 0 for i in range(48)]}
config = GPT2Config(vocab_size=2048, n_embd=384, n_layer=6, n_head=6)
model, reference = GPT2LMHeadModel(config), GPT2LMHeadModel(config)
settings = KTOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, bf16=True, report_to=[], save_strategy="no",
                     disable_tqdm=True, logging_strategy="no")
KTOTrainer(model=model, ref_model=reference, args=settings, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer).train()
