"""Trainer with a loss of its own: ALBERT names several labels of a text, focal loss against weights of classes, logits kept for F1, the best step loaded, SGD."""
import tempfile
import numpy as np
import torch
from transformers import AlbertConfig, AlbertForSequenceClassification, EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)
model = AlbertForSequenceClassification(AlbertConfig(vocab_size=12000, embedding_size=128, hidden_size=768, num_hidden_layers=10, num_attention_heads=12, intermediate_size=3072, num_labels=40, problem_type="multi_label_classification"))
rows = [{"input_ids": torch.randint(4, 12000, (256,)), "attention_mask": torch.ones(256, dtype=torch.long), "labels": (torch.rand(40) < 0.1).float()} for _ in range(96)]
weights = torch.rand(40) + 0.5


class Focal(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        plain = torch.nn.functional.binary_cross_entropy_with_logits(outputs.logits, labels, pos_weight=weights.to(labels.device), reduction="none")
        loss = ((1 - torch.exp(-plain)) ** 2 * plain).mean()
        return (loss, outputs) if return_outputs else loss


class Told(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        norms = [p.norm().item() for p in kwargs["model"].parameters() if p.ndim == 2]
        print(state.global_step, max(norms), torch.cuda.memory_allocated() // 2**20)


def score(told):
    guess = told.predictions > 0
    return {"f1": float(2 * (guess & (told.label_ids > 0.5)).sum() / max(1, guess.sum() + told.label_ids.sum())), "micro": float(np.mean(guess == (told.label_ids > 0.5)))}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=32, max_steps=6, optim="sgd", optim_args="momentum=0.9,nesterov=True", learning_rate=0.01, tf32=True, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
                         save_total_limit=1, load_best_model_at_end=True, metric_for_best_model="f1", greater_is_better=True, logging_steps=2, report_to="none", disable_tqdm=True)
trainer = Focal(model=model, args=args, train_dataset=rows[:64], eval_dataset=rows[64:], compute_metrics=score, callbacks=[Told(), EarlyStoppingCallback(3)])
trainer.train()
print(trainer.predict(rows[64:]).metrics)
