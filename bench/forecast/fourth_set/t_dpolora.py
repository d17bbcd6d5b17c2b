"""TRL: DPO with LoRA; the base without its adapter is the reference."""
import tempfile
import random
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(2000)} | {"<pad>": 2000, "<eos>": 2001, "<unk>": 2002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
def say(low, high):
    return " ".join(f"w{random.randrange(2000)}" for _ in range(random.randrange(low, high)))
rows = {"prompt": [say(10, 60) for _ in range(64)], "chosen": [" " + say(20, 120) for _ in range(64)], "rejected": [" " + say(20, 120) for _ in range(64)]}
model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8, pad_token_id=2000))
settings = DPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4, bf16=True, report_to=[],
                     save_strategy="no", disable_tqdm=True, logging_strategy="no", loss_type="ipo", gradient_checkpointing=False)
DPOTrainer(model=model, args=settings, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer,
           peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")).train()
