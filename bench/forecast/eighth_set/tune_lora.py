"""torchtune's lora_finetune_single_device recipe as `tune run` starts it (TUNE names a folder with an older torchao): a small Llama 3.2 in Hugging Face's files, made-up words, activation checkpointing."""
import os
import sys
for d in (os.environ.get("TUNE"),):
    if d: sys.path.insert(0, d)
import json
import runpy
import tempfile
import torch
import torchtune
from safetensors.torch import save_file
from torchtune.models.convert_weights import tune_to_hf
from torchtune.models.llama3_2._component_builders import llama3_2
class Rows(torch.utils.data.Dataset):
    def __init__(self, tokenizer=None, packed=False, **_):
        g = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(0, 8000, (int(torch.randint(60, 260, (1,), generator=g)),), generator=g).tolist() for _ in range(64)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return {"tokens": self.rows[i], "labels": self.rows[i]}
class Words:
    pad_id = 0
    def __init__(self, **_): pass
if __name__ == "__main__":
    import tune_lora  # its classes are components by that name
    where = tempfile.mkdtemp()
    size = dict(vocab_size=8000, num_layers=6, num_heads=8, num_kv_heads=4, embed_dim=512, max_seq_len=1024, intermediate_dim=1536)
    weights = tune_to_hf(llama3_2(**size).state_dict(), num_heads=8, num_kv_heads=4, dim=512)
    save_file({k: v.contiguous() for k, v in weights.items()}, where + "/model.safetensors")
    with open(where + "/config.json", "w") as f:
        json.dump({"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "head_dim": 64}, f)
    recipe = os.path.join(os.path.dirname(os.path.dirname(torchtune.__file__)), "recipes")
    sys.argv = ["tune", "--config", recipe + "/configs/llama3_2/1B_lora_single_device.yaml", "model._component_=torchtune.models.llama3_2._component_builders.lora_llama3_2", *(f"model.{k}={v}" for k, v in size.items()),
                "tokenizer._component_=tune_lora.Words", "dataset._component_=tune_lora.Rows", f"checkpointer.checkpoint_dir={where}", f"output_dir={tempfile.mkdtemp()}", "epochs=1", "max_steps_per_epoch=5", "batch_size=4", "gradient_accumulation_steps=2",
                "enable_activation_checkpointing=True", "compile=False", "metric_logger.log_dir=" + where]
    runpy.run_path(recipe + "/lora_finetune_single_device.py", run_name="__main__")
