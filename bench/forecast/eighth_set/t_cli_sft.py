"""`trl sft` as its command line starts it: a model and a data set in folders, packing, LoRA by options, bf16 weights."""
import json
import random
import sys
import tempfile
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.scripts.sft import main, make_parser
torch.manual_seed(0)
random.seed(0)
folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(9000)} | {"<pad>": 9000, "<eos>": 9001, "<unk>": 9002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>").save_pretrained(folder + "/model")
LlamaForCausalLM(LlamaConfig(vocab_size=9024, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, pad_token_id=9000, eos_token_id=9001)).save_pretrained(folder + "/model")
import os
os.makedirs(folder + "/data")
with open(folder + "/data/train.jsonl", "w") as f:
    for _ in range(200):
        f.write(json.dumps({"text": " ".join(f"w{random.randrange(9000)}" for _ in range(60 + random.randrange(200)))}) + "\n")
sys.argv = ["trl", "--model_name_or_path", folder + "/model", "--dataset_name", folder + "/data", "--output_dir", folder + "/out", "--packing", "--max_length", "512", "--per_device_train_batch_size", "4", "--max_steps", "6",
            "--use_peft", "--lora_r", "32", "--lora_target_modules", "q_proj", "v_proj", "--report_to", "none", "--save_strategy", "no", "--logging_steps", "3", "--disable_tqdm", "true", "--dtype", "bfloat16", "--attn_implementation", "sdpa"]
script, training, model, dataset, *rest = make_parser().parse_args_and_config()
main(script, training, model, dataset)
