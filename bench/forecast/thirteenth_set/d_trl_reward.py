"""TRL by accelerate on two cards: RewardTrainer on pairs of answers, a small Gemma 2 with one number at its end, bf16, evaluated, saved."""
# accelerate launch
import os
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Gemma2Config, Gemma2ForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(8000)}" for _ in range(n))
rows = Dataset.from_dict({k: [say(n + random.randrange(n)) for _ in range(96)] for k, n in (("chosen", 150), ("rejected", 120))})
model = Gemma2ForSequenceClassification(Gemma2Config(vocab_size=8064, hidden_size=640, intermediate_size=2560, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=80, num_labels=1, pad_token_id=8000, eos_token_id=8001, bos_token_id=8001))
settings = RewardConfig(output_dir=os.path.join(tempfile.gettempdir(), "reward"), per_device_train_batch_size=4, per_device_eval_batch_size=8, max_steps=4, max_length=256, learning_rate=1e-5, bf16=True, report_to=[], save_strategy="steps", save_steps=4, disable_tqdm=True, logging_steps=1, eval_strategy="steps", eval_steps=2, gradient_checkpointing=False)
RewardTrainer(model=model, args=settings, train_dataset=rows.select(range(80)), eval_dataset=rows.select(range(80, 96)), processing_class=tokenizer).train()
torch.distributed.destroy_process_group()
