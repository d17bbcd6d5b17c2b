"""TRL: TPOTrainer on triples of answers, a Llama with LoRA of peft, two batches a step, bf16."""
import random
import tempfile
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.experimental.tpo import TPOConfig, TPOTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(8000)}" for _ in range(n))
rows = Dataset.from_dict({k: [say(n + random.randrange(n)) for _ in range(32)] for k, n in (("prompt", 60), ("chosen", 100), ("rejected", 80), ("reference", 120))})
model = LlamaForCausalLM(LlamaConfig(vocab_size=8064, hidden_size=768, intermediate_size=2304, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, pad_token_id=8000, eos_token_id=8001, bos_token_id=8001))
settings = TPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3, learning_rate=1e-5, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1, gradient_checkpointing=False)
TPOTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer, peft_config=LoraConfig(r=32, target_modules=["q_proj", "k_proj", "v_proj", "gate_proj"], task_type="CAUSAL_LM")).train()
