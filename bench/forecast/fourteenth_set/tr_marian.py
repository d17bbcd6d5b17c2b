"""Seq2SeqTrainer: a Marian translator, label smoothing, Adafactor, fp16, accumulated over two batches, beams in its evaluation, whose words come back in parts."""
import random
import tempfile
import torch
from transformers import DataCollatorForSeq2Seq, MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models, pre_tokenizers

torch.manual_seed(0)
random.seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(24000)} | {"<pad>": 24000, "</s>": 24001, "<unk>": 24002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
config = MarianConfig(vocab_size=24003, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=512, pad_token_id=24000, eos_token_id=24001, decoder_start_token_id=24000,
                      forced_eos_token_id=24001, scale_embedding=True)
model = MarianMTModel(config)
model.generation_config.update(pad_token_id=24000, eos_token_id=24001, decoder_start_token_id=24000, forced_eos_token_id=24001)


def row():
    n = random.randrange(20, 120)
    return {"input_ids": [random.randrange(24000) for _ in range(n)], "labels": [random.randrange(24000) for _ in range(n + random.randrange(-8, 8))] + [24001]}


def score(told):
    return {"length": float((told.predictions != 24000).sum(1).mean())}


args = Seq2SeqTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=24, per_device_eval_batch_size=8, gradient_accumulation_steps=2, max_steps=4, optim="adafactor", learning_rate=3e-4, fp16=True, label_smoothing_factor=0.1, eval_strategy="steps", eval_steps=2,
                                predict_with_generate=True, generation_num_beams=6, generation_max_length=48, eval_accumulation_steps=1, save_strategy="no", logging_steps=1, report_to="none", disable_tqdm=True)
Seq2SeqTrainer(model=model, args=args, train_dataset=[row() for _ in range(192)], eval_dataset=[row() for _ in range(24)], data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=8), processing_class=tokenizer, compute_metrics=score).train()
