"""TRL: DPOTrainer with the reference's numbers found before, three losses weighted together (sigmoid, BCO, SFT), a small Gemma 2 in bf16, evaluated."""
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(9000)} | {"<pad>": 9000, "<eos>": 9001, "<unk>": 9002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(9000)}" for _ in range(n))
rows = Dataset.from_dict({"prompt": [say(random.randrange(40, 90)) for _ in range(32)], "chosen": [say(random.randrange(60, 150)) for _ in range(32)], "rejected": [say(random.randrange(60, 150)) for _ in range(32)]})
config = Gemma2Config(vocab_size=9024, hidden_size=640, intermediate_size=2560, num_hidden_layers=7, num_attention_heads=8, num_key_value_heads=4, head_dim=80, sliding_window=128, pad_token_id=9000, eos_token_id=9001, bos_token_id=9001, attn_implementation="eager")
model = Gemma2ForCausalLM(config)
settings = DPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, per_device_eval_batch_size=4, gradient_accumulation_steps=2, max_steps=3, learning_rate=5e-6, bf16=True, loss_type=["sigmoid", "bco_pair", "sft"], loss_weights=[0.8, 0.2, 1.0], precompute_ref_log_probs=True,
                     eval_strategy="steps", eval_steps=3, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1, gradient_checkpointing=True)
DPOTrainer(model=model, args=settings, train_dataset=rows.select(range(24)), eval_dataset=rows.select(range(24, 32)), processing_class=tokenizer).train()
