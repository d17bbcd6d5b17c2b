"""Seq2SeqTrainer: T5 v1.1 (gated), Adafactor without a rate, evaluation by beams of three, labels padded to odd lengths."""
import tempfile
import torch
from transformers import DataCollatorWithPadding, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration
torch.manual_seed(0)
model = T5ForConditionalGeneration(T5Config(vocab_size=15003, d_model=320, d_kv=40, d_ff=900, num_layers=4, num_heads=8, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                                            decoder_start_token_id=0))
def collate(batch):
    pad = lambda key, value: torch.nn.utils.rnn.pad_sequence([r[key] for r in batch], batch_first=True, padding_value=value)
    ids = pad("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": pad("labels", -100)}
g = torch.Generator().manual_seed(3)
n = lambda a, b: int(torch.randint(a, b, (), generator=g))
rows = [{"input_ids": torch.randint(2, 15003, (n(60, 300),)), "labels": torch.randint(2, 15003, (n(20, 90),))} for _ in range(70)]
settings = Seq2SeqTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=6, per_device_eval_batch_size=4, max_steps=6, optim="adafactor",
                                    predict_with_generate=True, generation_max_length=19, generation_num_beams=3, eval_strategy="steps", eval_steps=6, report_to=[],
                                    save_strategy="no", disable_tqdm=True, logging_strategy="no", max_grad_norm=1.0)
Seq2SeqTrainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows[:9], data_collator=collate).train()
