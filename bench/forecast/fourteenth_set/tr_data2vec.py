"""Trainer: Data2Vec hears classes of sounds of several lengths, its convolutions frozen, checkpointed, fp16, sampled by length, AdamW of PyTorch without fusing."""
import tempfile
import torch
from datasets import Dataset
from transformers import Data2VecAudioConfig, Data2VecAudioForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
config = Data2VecAudioConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, num_labels=20, conv_dim=(256,) * 7, classifier_proj_size=128, mask_time_prob=0.05, layerdrop=0.0, num_conv_pos_embeddings=3, conv_pos_kernel_size=19)
model = Data2VecAudioForSequenceClassification(config)
model.freeze_feature_encoder()
lengths = torch.randint(12000, 64000, (64,)).tolist()
rows = Dataset.from_dict({"input_values": [torch.randn(n).numpy() for n in lengths], "labels": [n % 20 for n in lengths], "length": lengths})


def collate(batch):
    sounds = [torch.tensor(row["input_values"]) for row in batch]
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(s), dtype=torch.long) for s in sounds], batch_first=True)
    return {"input_values": torch.nn.utils.rnn.pad_sequence(sounds, batch_first=True), "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in batch])}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, per_device_eval_batch_size=8, max_steps=5, fp16=True, optim="adamw_torch", gradient_checkpointing=True, train_sampling_strategy="group_by_length", eval_strategy="steps", eval_steps=5, save_strategy="no",
                         logging_steps=1, report_to="none", disable_tqdm=True, max_grad_norm=0.5, remove_unused_columns=False)
Trainer(model=model, args=args, train_dataset=rows.select(range(48)), eval_dataset=rows.select(range(48, 64)), data_collator=collate).train()
