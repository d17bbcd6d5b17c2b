"""TRL's SFTTrainer: prompts and completions, packed, LoRA on a Llama in bf16, loss on completions alone."""
import random
import tempfile
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(8000)}" for _ in range(n))
rows = Dataset.from_dict({"prompt": [say(random.randint(20, 90)) for _ in range(96)], "completion": [say(random.randint(60, 220)) for _ in range(96)]})
model = LlamaForCausalLM(LlamaConfig(vocab_size=8064, hidden_size=896, intermediate_size=2432, num_hidden_layers=8, num_attention_heads=14, num_key_value_heads=2, pad_token_id=8000, eos_token_id=8001)).to(torch.bfloat16)
args = SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4, max_length=384, bf16=True, completion_only_loss=True, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True, learning_rate=2e-4)
SFTTrainer(model=model, args=args, train_dataset=rows, processing_class=tokenizer, peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")).train()
