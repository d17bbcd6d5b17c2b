"""TRL: GKDTrainer, a student learns a larger teacher's words, half of them from its own answers, which it generates in the loop."""
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.experimental.gkd import GKDConfig, GKDTrainer
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(6000)} | {"<pad>": 6000, "<eos>": 6001, "<unk>": 6002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                    chat_template="{% for m in messages %}{{ m['content'] }} <eos> {% endfor %}")
say = lambda n: " ".join(f"w{random.randrange(6000)}" for _ in range(n))
rows = Dataset.from_dict({"messages": [[{"role": "user", "content": say(30)}, {"role": "assistant", "content": say(80)}] for _ in range(48)]})
def made(size, layers):
    return LlamaForCausalLM(LlamaConfig(vocab_size=6016, hidden_size=size, intermediate_size=3 * size, num_hidden_layers=layers, num_attention_heads=8, pad_token_id=6000, eos_token_id=6001))
settings = GKDConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, max_length=160, max_new_tokens=40, lmbda=0.5, beta=0.5, temperature=0.9, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
GKDTrainer(model=made(384, 4), teacher_model=made(768, 6), args=settings, train_dataset=rows, processing_class=tokenizer).train()
