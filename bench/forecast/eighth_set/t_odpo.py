"""TRL: OnlineDPOTrainer, two answers to each prompt are generated, a reward by a function ranks them; LoRA of peft on the model."""
import random
import tempfile
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(5000)} | {"<pad>": 5000, "<eos>": 5001, "<unk>": 5002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>", padding_side="left")
rows = Dataset.from_dict({"prompt": [" ".join(f"w{random.randrange(5000)}" for _ in range(32)) for _ in range(32)]})
model = LlamaForCausalLM(LlamaConfig(vocab_size=5056, hidden_size=640, intermediate_size=1792, num_hidden_layers=6, num_attention_heads=10, pad_token_id=5000, eos_token_id=5001))
settings = OnlineDPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=3, max_new_tokens=32, max_length=128, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", missing_eos_penalty=1.0)
def shorter(completions, **_):
    return [-float(len(c)) for c in completions]
OnlineDPOTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer, reward_funcs=shorter, peft_config=LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).train()
