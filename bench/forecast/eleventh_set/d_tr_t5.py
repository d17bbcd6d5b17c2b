"""Seq2SeqTrainer by torchrun on two cards: mT5 in bf16, Adafactor, checkpointed, accumulated, answers generated in its evaluation, saved."""
import tempfile
import torch
from transformers import MT5Config, MT5ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments

torch.manual_seed(0)
model = MT5ForConditionalGeneration(MT5Config(vocab_size=24000, d_model=512, d_kv=64, d_ff=1024, num_layers=6, num_decoder_layers=6, num_heads=8, decoder_start_token_id=0, use_cache=True))
rows = [{"input_ids": torch.randint(2, 24000, (320,)), "attention_mask": torch.ones(320, dtype=torch.long), "labels": torch.randint(2, 24000, (96,))} for _ in range(96)]
args = Seq2SeqTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, per_device_eval_batch_size=6, gradient_accumulation_steps=2, max_steps=4, bf16=True, optim="adafactor", learning_rate=1e-3, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False},
                                predict_with_generate=True, generation_max_length=20, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=4, report_to="none", logging_steps=1, disable_tqdm=True, ddp_find_unused_parameters=False)
Seq2SeqTrainer(model=model, args=args, train_dataset=rows[:80], eval_dataset=rows[80:]).train()
torch.distributed.destroy_process_group()  # Trainer called init_process_group
