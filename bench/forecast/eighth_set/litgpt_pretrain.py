"""litgpt's pretrain, as `litgpt pretrain` calls it: a small Pythia from nothing, words from a loader made here, compiled by its Fabric, gradients of two small batches added, a validation."""
import sys
import tempfile
from pathlib import Path
import torch
from litgpt import Config
from litgpt.args import EvalArgs, LogArgs, TrainArgs
from litgpt.data import DataModule
from litgpt.pretrain import setup
class Words(DataModule):
    def connect(self, tokenizer=None, batch_size=1, max_seq_length=None):
        self.batch, self.length = batch_size, max_seq_length
    def loader(self, n):
        return torch.utils.data.DataLoader(torch.randint(0, 20000, (n, self.length + 1)), batch_size=self.batch)
    def train_dataloader(self):
        return self.loader(400)
    def val_dataloader(self):
        return self.loader(8)
if __name__ == "__main__":
    sys.argv = ["litgpt", "pretrain", "pythia-14m"]
    config = Config(name="small", block_size=512, vocab_size=20000, padded_vocab_size=20096, n_layer=6, n_head=8, n_query_groups=2, n_embd=512, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP", intermediate_size=1408, bias=False,
                    parallel_residual=False, rotary_percentage=1.0)
    setup(model_name="small", model_config=config, out_dir=Path(tempfile.mkdtemp()), precision="bf16-mixed", data=Words(), seed=1, tokenizer_dir=None, logger_name="csv", devices=1,
          train=TrainArgs(save_interval=1000, log_interval=1, global_batch_size=8, micro_batch_size=4, max_tokens=8 * 512 * 6, max_norm=1.0, lr_warmup_steps=2, tie_embeddings=False),
          eval=EvalArgs(interval=4, max_iters=2, initial_validation=False, final_validation=True), log=LogArgs(), optimizer="AdamW")
