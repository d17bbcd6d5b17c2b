"""transformers' Trainer with FSDP (full_shard, auto_wrap, version 2 by fsdp_config): a Qwen 3, bf16, checkpointed activations, gathered for the save at the end."""
import tempfile
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        ids = torch.randint(0, 16000, (512,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


model = Qwen3ForCausalLM(Qwen3Config(vocab_size=16000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=8, head_dim=64))
folder = tempfile.mkdtemp()
settings = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=5, bf16=True, logging_steps=1, report_to=[], disable_tqdm=True, save_strategy="no", learning_rate=1e-4,
                             fsdp="full_shard auto_wrap", fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["Qwen3DecoderLayer"], "activation_checkpointing": True})
trainer = Trainer(model=model, args=settings, train_dataset=Rows())
trainer.train()
trainer.save_model(folder)
torch.distributed.destroy_process_group()
