"""TRL: DPO with a reference model that is mixed in anew, two losses weighted, gradients accumulated."""
import random
import tempfile
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
torch.manual_seed(0)
random.seed(1)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(5000)} | {"<pad>": 5000, "<eos>": 5001, "<unk>": 5002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
some = lambda a, b: " ".join(f"w{random.randrange(5000)}" for _ in range(random.randrange(a, b)))
rows = Dataset.from_dict({"prompt": (p := [some(10, 80) for _ in range(48)]), "chosen": [" " + some(30, 180) for _ in p], "rejected": [" " + some(30, 180) for _ in p]})
config = LlamaConfig(vocab_size=5003, hidden_size=448, intermediate_size=1200, num_hidden_layers=5, num_attention_heads=7, pad_token_id=5000)
model = LlamaForCausalLM(config)
reference = LlamaForCausalLM(config)
reference.load_state_dict(model.state_dict())
settings = DPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=5, bf16=True, loss_type=["sigmoid", "sft"],
                     loss_weights=[1.0, 0.3], sync_ref_model=True, ref_model_sync_steps=2, max_length=230, report_to=[], save_strategy="no", disable_tqdm=True,
                     logging_strategy="no", gradient_checkpointing=False)
DPOTrainer(model=model, ref_model=reference, args=settings, train_dataset=rows, processing_class=tokenizer).train()
