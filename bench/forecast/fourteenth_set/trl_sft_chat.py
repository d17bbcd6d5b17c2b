"""TRL: SFTTrainer on prompts and completions of which the completions alone count, packed by length without flash attention, a small SmolLM 3, paged 8-bit AdamW."""
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, SmolLM3Config, SmolLM3ForCausalLM
from trl import SFTConfig, SFTTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(12000)} | {"<pad>": 12000, "<eos>": 12001, "<unk>": 12002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(12000)}" for _ in range(n))
rows = Dataset.from_dict({"prompt": [say(random.randrange(30, 200)) for _ in range(120)], "completion": [say(random.randrange(40, 300)) for _ in range(120)]})
model = SmolLM3ForCausalLM(SmolLM3Config(vocab_size=12032, hidden_size=768, intermediate_size=2304, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, pad_token_id=12000, eos_token_id=12001, bos_token_id=12001, max_position_embeddings=2048))
settings = SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=3, per_device_eval_batch_size=3, max_steps=4, learning_rate=1e-4, bf16=True, packing=True, packing_strategy="wrapped", eval_packing=False, max_length=768, completion_only_loss=True, optim="paged_adamw_8bit",
                     eval_strategy="steps", eval_steps=2, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1, gradient_checkpointing=False)
SFTTrainer(model=model, args=settings, train_dataset=rows.select(range(100)), eval_dataset=rows.select(range(100, 120)), processing_class=tokenizer).train()
