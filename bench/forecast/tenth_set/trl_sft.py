"""TRL's SFTTrainer under accelerate launch, two processes: packed texts, a small Llama, LoRA, gradient checkpointing."""
# accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16
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
rows = Dataset.from_dict({"text": [" ".join(f"w{random.randrange(8000)}" for _ in range(random.randrange(60, 300))) for _ in range(160)]})
model = LlamaForCausalLM(LlamaConfig(vocab_size=8064, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4))
settings = SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=5, max_length=512, packing=True, packing_strategy="wrapped", bf16=True, report_to=[], disable_tqdm=True,
                     save_strategy="no", logging_steps=1, gradient_checkpointing=True)
SFTTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer, peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")).train()
torch.distributed.destroy_process_group()
