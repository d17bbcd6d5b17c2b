"""TRL's DPOTrainer on two ranks, DDP: pairs of answers, a reference model beside the trained one, an evaluation in the loop."""
# accelerate launch --multi_gpu --num_processes 2
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
say = lambda n: " ".join(f"w{random.randrange(8000)}" for _ in range(n))
rows = Dataset.from_dict({k: [say(n + random.randrange(n)) for _ in range(60)] for k, n in (("prompt", 40), ("chosen", 90), ("rejected", 70))})
make = lambda: Qwen2ForCausalLM(Qwen2Config(vocab_size=8064, hidden_size=640, intermediate_size=1920, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2, pad_token_id=8000, eos_token_id=8001))
settings = DPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=4, max_length=256, learning_rate=1e-5, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=2, eval_strategy="steps", eval_steps=2)
DPOTrainer(model=make(), ref_model=make(), args=settings, train_dataset=rows, eval_dataset=rows.select(range(16)), processing_class=tokenizer).train()
torch.distributed.destroy_process_group()
