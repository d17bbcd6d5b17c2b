"""Trains torchtitan's own Llama of a debugging size with torchtitan's own trainer and FSDP2, under torchrun; random words instead of its data set."""
import argparse
import os
import tempfile

import words
from torchtitan.hf_datasets import text_datasets
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.tools.logging import init_logger

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--steps", type=int, default=8)
p.add_argument("--compile", action="store_true")
a = p.parse_args()

init_logger()
folder = tempfile.TemporaryDirectory()
words.tokenizer(2000).save_pretrained(folder.name)
text_datasets.DATASETS["words"] = text_datasets.DatasetConfig(
    path="words", loader=lambda path: words.dataset({"text": (200, 400)}), sample_processor=lambda sample: sample["text"])
config = llama3_debugmodel()
config.hf_assets_path = folder.name
config.dump_folder = os.path.join(folder.name, "dump")
config.dataloader.dataset = "words"
config.training.local_batch_size, config.training.seq_len, config.training.steps = a.batch, a.len, a.steps
config.checkpoint.enable = False
config.validator.enable = False
config.compile.enable = a.compile
trainer = config.build()
trainer.train()
trainer.close()
