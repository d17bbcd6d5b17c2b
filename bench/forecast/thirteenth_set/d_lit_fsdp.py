"""Lightning by torchrun on two cards: FSDPStrategy with a policy by layer, its own checkpointing of activations, bf16-true, a sharded checkpoint read again."""
# two cards
import tempfile
import os
import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Words(L.LightningModule):
    def __init__(self, vocab=16000, dim=1024, depth=8):
        super().__init__()
        self.settings = vocab, dim, depth

    def configure_model(self):
        if hasattr(self, "embed"):
            return
        vocab, dim, depth = self.settings
        self.embed, self.layers, self.head = nn.Embedding(vocab, dim), nn.ModuleList(nn.TransformerEncoderLayer(dim, 16, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(depth)), nn.Linear(dim, vocab)

    def training_step(self, batch, i):
        ids = batch[0]
        x, mask = self.embed(ids[:, :-1]), nn.Transformer.generate_square_subsequent_mask(ids.shape[1] - 1, device=ids.device, dtype=torch.bfloat16)
        for layer in self.layers:
            x = layer(x, mask, is_causal=True)
        loss = nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), ids[:, 1:].flatten())
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-4)


L.seed_everything(0)
folder = os.path.join(tempfile.gettempdir(), "lit_fsdp_" + os.environ.get("TORCHELASTIC_RUN_ID", "0"))
data = DataLoader(TensorDataset(torch.randint(0, 16000, (256, 513))), batch_size=8)


def trainer(steps):
    strategy = FSDPStrategy(auto_wrap_policy={nn.TransformerEncoderLayer}, activation_checkpointing_policy={nn.TransformerEncoderLayer}, state_dict_type="sharded", limit_all_gathers=True, cpu_offload=False)
    return L.Trainer(accelerator="gpu", devices=2, strategy=strategy, precision="bf16-true", max_steps=steps, gradient_clip_val=None, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, callbacks=[ModelCheckpoint(folder, filename="last", every_n_train_steps=3, enable_version_counter=False)])


trainer(3).fit(Words(), data)
again = trainer(5)
again.fit(Words(), data, ckpt_path=f"{folder}/last.ckpt")
print(again.global_step)
torch.distributed.destroy_process_group()
