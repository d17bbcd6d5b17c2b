"""Trains torchtitan's own Llama with torchtitan's own trainer and FSDP2, under torchrun; random words instead of its data set. torchtitan 0.2 or 0.3."""
import argparse
import os
import tempfile

import words
from torchtitan.hf_datasets import text_datasets
from torchtitan.tools.logging import init_logger

p = argparse.ArgumentParser()
p.add_argument("--model", choices=["debug", "8b"], default="debug")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--steps", type=int, default=8)
p.add_argument("--checkpoint", choices=["none", "selective", "ops", "full"], default="selective", help="selective: every second layer; ops: by op")
p.add_argument("--compile", action="store_true")
a = p.parse_args()


def job():
    """The model's settings and what trains them, as each version of torchtitan names them."""
    try:
        from torchtitan.models.llama3 import config_registry
        if a.checkpoint != "selective":
            p.error("--checkpoint: with torchtitan 0.3 the model's own setting is taken; leave it out, or install torchtitan 0.2")
        config = {"debug": config_registry.llama3_debugmodel, "8b": config_registry.llama3_8b}[a.model]()
        config.hf_assets_path = folder.name
        config.dump_folder = os.path.join(folder.name, "dump")
        config.dataloader.dataset = "words"
        config.validator.enable = False
        return config, lambda config: config.build()
    except ImportError:
        from torchtitan.config import JobConfig
        from torchtitan.train import Trainer
        config = JobConfig()
        config.model.flavor = {"debug": "debugmodel", "8b": "8B"}[a.model]
        config.model.hf_assets_path = folder.name
        config.job.dump_folder = os.path.join(folder.name, "dump")
        config.training.dataset = "words"
        config.activation_checkpoint.mode = "selective" if a.checkpoint == "ops" else a.checkpoint
        config.activation_checkpoint.selective_ac_option = "op" if a.checkpoint == "ops" else "2"
        return config, Trainer


init_logger()
folder = tempfile.TemporaryDirectory()
words.tokenizer(2000).save_pretrained(folder.name)
text_datasets.DATASETS["words"] = text_datasets.DatasetConfig(
    path="words", loader=lambda path: words.dataset({"text": (200, 400)}), sample_processor=lambda sample: sample["text"])
config, trainer_of = job()
config.training.local_batch_size, config.training.seq_len, config.training.steps = a.batch, a.len, a.steps
config.checkpoint.enable = False
config.compile.enable = a.compile
trainer = trainer_of(config)
trainer.train()
trainer.close()
