"""Seq2SeqTrainer: Whisper in fp16 with masks over its spectra, answers generated in the evaluation."""
import tempfile
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperConfig, WhisperForConditionalGeneration
torch.manual_seed(0)
config = WhisperConfig(vocab_size=4000, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024,
                       decoder_ffn_dim=1024, apply_spec_augment=True, mask_time_prob=0.05, mask_feature_prob=0.1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                       decoder_start_token_id=1)
model = WhisperForConditionalGeneration(config)
model.generation_config.max_length = 24
model.generation_config.min_length = 24
rows = [{"input_features": torch.randn(80, 3000), "labels": torch.randint(3, 4000, (48,))} for _ in range(32)]
settings = Seq2SeqTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, per_device_eval_batch_size=4, max_steps=4, fp16=True,
                                    predict_with_generate=True, generation_max_length=24, eval_strategy="steps", eval_steps=2, report_to=[], save_strategy="no",
                                    disable_tqdm=True, logging_strategy="no")
Seq2SeqTrainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows[:8]).train()
