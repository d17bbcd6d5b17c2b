"""unsloth: a small Llama by FastLanguageModel, LoRA with its checkpointing and fused loss, Trainer around it."""
import os
import tempfile
import torch
os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"
from unsloth import FastLanguageModel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from tokenizers import Tokenizer, models, pre_tokenizers
torch.manual_seed(0)
folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"<pad>": 8000, "<eos>": 8001, "<unk>": 8002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>").save_pretrained(folder)
LlamaForCausalLM(LlamaConfig(vocab_size=8064, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8, pad_token_id=8000, eos_token_id=8001, bos_token_id=8001)).save_pretrained(folder)
model, tok = FastLanguageModel.from_pretrained(folder, max_seq_length=512, dtype=torch.bfloat16, load_in_4bit=False)
model = FastLanguageModel.get_peft_model(model, r=16, target_modules=["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"], lora_alpha=16, use_gradient_checkpointing="unsloth")
rows = [{"input_ids": (x := torch.randint(0, 8000, (256,))), "labels": x, "attention_mask": torch.ones_like(x)} for _ in range(32)]
Trainer(model=model, args=TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=4, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True), train_dataset=rows).train()
