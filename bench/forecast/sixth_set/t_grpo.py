"""TRL: GRPO with LoRA, groups of six, two iterations on each generation, a penalty by KL, rewards by length and by a rule."""
import random
import tempfile
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer
torch.manual_seed(0)
random.seed(2)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(4000)} | {"<pad>": 4000, "<eos>": 4001, "<unk>": 4002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
rows = Dataset.from_dict({"prompt": [" ".join(f"w{random.randrange(4000)}" for _ in range(random.randrange(15, 60))) for _ in range(30)]})
model = Qwen3ForCausalLM(Qwen3Config(vocab_size=4003, hidden_size=448, intermediate_size=1200, num_hidden_layers=4, num_attention_heads=7, num_key_value_heads=7, head_dim=64,
                                     pad_token_id=4000, eos_token_id=None, bos_token_id=None))
model.generation_config.eos_token_id = None
def short(completions, **_): return [-len(c) / 100 for c in completions]
def rule(completions, **_): return [float("w1" in c) for c in completions]
settings = GRPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=12, num_generations=6, max_completion_length=47, num_iterations=2, beta=0.04, max_steps=4, bf16=True,
                      loss_type="dapo", epsilon_high=0.28, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", gradient_checkpointing=True)
GRPOTrainer(model=model, reward_funcs=[short, rule], args=settings, train_dataset=rows, processing_class=tokenizer, peft_config=LoraConfig(r=8, target_modules="all-linear")).train()
