"""TRL: supervised fine-tuning of prompts and completions, activations offloaded by TRL's hooks, its DFT loss, LoRA on all linear layers."""
import random
import tempfile
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(6000)} | {"<pad>": 6000, "<eos>": 6001, "<unk>": 6002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
some = lambda a, b: " ".join(f"w{random.randrange(6000)}" for _ in range(random.randrange(a, b)))
rows = Dataset.from_dict({"prompt": (p := [some(20, 150) for _ in range(64)]), "completion": [" " + some(40, 300) for _ in p]})
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=6003, hidden_size=640, intermediate_size=1700, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2, pad_token_id=6000))
settings = SFTConfig(output_dir=tempfile.mkdtemp(), max_length=400, per_device_train_batch_size=6, max_steps=5, bf16=True, gradient_checkpointing=False, activation_offloading=True,
                     loss_type="dft", report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
SFTTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer, peft_config=LoraConfig(r=16, target_modules="all-linear", lora_dropout=0.05)).train()
