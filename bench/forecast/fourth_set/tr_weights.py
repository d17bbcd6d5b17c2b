"""Trainer: several labels a row, a loss of its own with weights, sampled by weights, fused AdamW, bf16 evaluation."""
import tempfile
import torch
from transformers import ElectraConfig, ElectraForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
rows = [{"input_ids": torch.randint(5, 8000, (200,)), "labels": (torch.rand(12) < 0.3).float()} for _ in range(96)]
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(out.logits.float(), labels, pos_weight=torch.full((12,), 3.0, device=labels.device))
        return (loss, out) if return_outputs else loss
    def _get_train_sampler(self, *a):
        return torch.utils.data.WeightedRandomSampler(torch.rand(96), 96)
model = ElectraForSequenceClassification(ElectraConfig(vocab_size=8000, embedding_size=128, hidden_size=384, num_hidden_layers=8, num_attention_heads=6,
                                                       intermediate_size=1536, num_labels=12, problem_type="multi_label_classification"))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, max_steps=6, optim="adamw_torch_fused", bf16=True, bf16_full_eval=False,
                             eval_strategy="steps", eval_steps=3, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
Weighted(model=model, args=settings, train_dataset=rows, eval_dataset=rows[:40]).train()
