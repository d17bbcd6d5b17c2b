"""TRL: RLOO, answers are generated in the loop."""
import tempfile
import random
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import RLOOConfig, RLOOTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(2000)} | {"<pad>": 2000, "<eos>": 2001, "<unk>": 2002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
rows = {"prompt": [" ".join(f"w{random.randrange(2000)}" for _ in range(32)) for _ in range(64)]}
model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, hidden_size=384, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=6, pad_token_id=2000,
                                     eos_token_id=2001))
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
model.config._name_or_path = model.name_or_path = folder
settings = RLOOConfig(output_dir=folder, per_device_train_batch_size=8, num_generations=4, max_completion_length=24, max_steps=3, bf16=True,
                      report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", generation_kwargs={"min_new_tokens": 24})
def longer(completions, **_):
    return [float(len(c)) for c in completions]
RLOOTrainer(model=model, args=settings, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer, reward_funcs=longer).train()
