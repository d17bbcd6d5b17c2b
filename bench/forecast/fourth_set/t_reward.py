"""TRL: a reward model with its own trainer."""
import tempfile
import random
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(2000)} | {"<pad>": 2000, "<eos>": 2001, "<unk>": 2002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
def say(low, high):
    return " ".join(f"w{random.randrange(2000)}" for _ in range(random.randrange(low, high)))
rows = {"chosen": [say(30, 200) for _ in range(64)], "rejected": [say(30, 200) for _ in range(64)]}
model = LlamaForSequenceClassification(LlamaConfig(vocab_size=2048, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                                                   num_labels=1, pad_token_id=2000))
settings = RewardConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=5, bf16=True, report_to=[], save_strategy="no",
                        disable_tqdm=True, logging_strategy="no", center_rewards_coefficient=0.01, gradient_checkpointing=True)
RewardTrainer(model=model, args=settings, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer).train()
