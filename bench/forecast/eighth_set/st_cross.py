"""sentence-transformers: CrossEncoderTrainer that reranks, with LambdaLoss over lists, then SparseEncoderTrainer with SPLADE's loss and penalties."""
import random
import tempfile
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments, SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import LambdaLoss
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, PreTrainedTokenizerFast
torch.manual_seed(0)
random.seed(0)
names = {f"w{i}": i for i in range(9000)} | {"[PAD]": 9000, "[CLS]": 9001, "[SEP]": 9002, "[MASK]": 9003, "[UNK]": 9004}
words = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.post_processor = processors.BertProcessing(("[SEP]", 9002), ("[CLS]", 9001))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", unk_token="[UNK]", model_max_length=128)
config = BertConfig(vocab_size=9024, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, pad_token_id=9000)
say = lambda n: " ".join(f"w{random.randrange(9000)}" for _ in range(n + random.randrange(n)))
for kind, made in (("cross", BertForSequenceClassification), ("sparse", BertForMaskedLM)):
    folder = tempfile.mkdtemp()
    config.num_labels = 1 if kind == "cross" else 2
    made(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    common = dict(output_dir=folder + "/out", num_train_epochs=1, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=2)
    if kind == "cross":
        model = CrossEncoder(folder, num_labels=1, device="cuda")
        rows = Dataset.from_dict({"query": [say(8) for _ in range(24)], "docs": [[say(40) for _ in range(6)] for _ in range(24)], "labels": [[1, 0, 0, 1, 0, 0]] * 24})
        CrossEncoderTrainer(model=model, args=CrossEncoderTrainingArguments(per_device_train_batch_size=6, **common), train_dataset=rows, loss=LambdaLoss(model, mini_batch_size=16)).train()
    else:
        model = SparseEncoder(folder, device="cuda")
        rows = Dataset.from_dict({"anchor": [say(8) for _ in range(64)], "positive": [say(40) for _ in range(64)]})
        loss = SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), document_regularizer_weight=3e-5, query_regularizer_weight=5e-5)
        SparseEncoderTrainer(model=model, args=SparseEncoderTrainingArguments(per_device_train_batch_size=16, **common), train_dataset=rows, loss=loss).train()
