"""Trainer: Wav2Vec2-BERT with CTC, features of many lengths, bf16, checkpointed, masked in time, LayerDrop off."""
import tempfile
import torch
from transformers import Trainer, TrainingArguments, Wav2Vec2BertConfig, Wav2Vec2BertForCTC

torch.manual_seed(0)
config = Wav2Vec2BertConfig(vocab_size=40, hidden_size=512, num_hidden_layers=10, num_attention_heads=8, intermediate_size=2048, feature_projection_input_dim=160, add_adapter=False, layerdrop=0.0, mask_time_prob=0.1, mask_time_length=5, mask_feature_prob=0.0, ctc_loss_reduction="mean", ctc_zero_infinity=True, pad_token_id=0)
model = Wav2Vec2BertForCTC(config)
lengths = [200 + (i * 97) % 500 for i in range(64)]


def collate(batch):
    n = max(len(b["input_features"]) for b in batch)
    mask = torch.zeros(len(batch), n, dtype=torch.long)
    for row, b in zip(mask, batch):
        row[: len(b["input_features"])] = 1
    return {"input_features": torch.stack([torch.nn.functional.pad(b["input_features"], (0, 0, 0, n - len(b["input_features"]))) for b in batch]), "attention_mask": mask, "labels": torch.stack([b["labels"] for b in batch])}


rows = [{"input_features": torch.randn(n, 160), "labels": torch.randint(1, 40, (40,))} for n in lengths]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=7, bf16=True, gradient_checkpointing=True, report_to="none", save_strategy="no", logging_steps=2, learning_rate=3e-4)
Trainer(model=model, args=args, train_dataset=rows, data_collator=collate).train()
