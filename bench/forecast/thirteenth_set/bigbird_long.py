"""BigBird: texts of 2048 words by blocks that look at few others, dynamic words hidden, Trainer with fp16 and a cosine with restarts, evaluated and scored."""
import tempfile
import torch
from transformers import BigBirdConfig, BigBirdForMaskedLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = BigBirdConfig(vocab_size=10000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, max_position_embeddings=2048, block_size=64, num_random_blocks=2, attention_type="block_sparse")
model = BigBirdForMaskedLM(config)
rows = [{"input_ids": ids} for ids in torch.randint(70, 10000, (36, 2048))]


def hide(batch):
    ids = torch.stack([row["input_ids"] for row in batch])
    labels, chosen = ids.clone(), torch.rand(ids.shape) < 0.15
    labels[~chosen] = -100
    return {"input_ids": ids.masked_fill(chosen & (torch.rand(ids.shape) < 0.8), 67), "labels": labels, "attention_mask": torch.ones_like(ids)}


def shrink(logits, labels):
    return logits.argmax(-1)


def score(told):
    kept = told.label_ids != -100
    return {"right": float((told.predictions[kept] == told.label_ids[kept]).mean())}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=3, per_device_eval_batch_size=6, max_steps=4, fp16=True, lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 2}, warmup_steps=1, eval_strategy="steps", eval_steps=2, logging_steps=1,
                         save_strategy="no", report_to="none", disable_tqdm=True)
Trainer(model=model, args=args, train_dataset=rows[:24], eval_dataset=rows[24:], data_collator=hide, compute_metrics=score, preprocess_logits_for_metrics=shrink).train()
