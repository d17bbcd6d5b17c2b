"""TRL: DistillationTrainer, a small Llama writes answers to prompts and learns from a larger one's words about them; bf16, checkpointed, cosine."""
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DistillationConfig, DistillationTrainer

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
rows = Dataset.from_dict({"prompt": [" ".join(f"w{random.randrange(8000)}" for _ in range(random.randrange(30, 90))) for _ in range(64)]})


def llama(size, layers):
    return LlamaForCausalLM(LlamaConfig(vocab_size=8064, hidden_size=size, intermediate_size=3 * size, num_hidden_layers=layers, num_attention_heads=size // 64, num_key_value_heads=4, pad_token_id=8000, eos_token_id=8001, bos_token_id=8001))


settings = DistillationConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=3, max_completion_length=64, learning_rate=1e-5, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1, lr_scheduler_type="cosine", generation_kwargs={"min_new_tokens": 64})
DistillationTrainer(model=llama(512, 6), teacher_model=llama(1024, 10), args=settings, train_dataset=rows, processing_class=tokenizer).train()
