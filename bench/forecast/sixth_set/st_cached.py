"""sentence-transformers: its trainer with the cached loss of in-batch negatives inside Matryoshka's, sentences of several lengths, bf16, an evaluation of triplets' loss."""
import random
import tempfile
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MatryoshkaLoss
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
try:
    from sentence_transformers.models import Pooling, Transformer
except ImportError:
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
random.seed(4)
torch.manual_seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(8000)} | {"[PAD]": 8000, "[UNK]": 8001, "[CLS]": 8002, "[SEP]": 8003}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 8002), ("[SEP]", 8003)])
folder = tempfile.mkdtemp()
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=200).save_pretrained(folder)
BertModel(BertConfig(vocab_size=8004, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536, max_position_embeddings=256)).save_pretrained(folder)
body = Transformer(folder, max_seq_length=200)
model = SentenceTransformer(modules=[body, Pooling(384, pooling_mode="mean")], device="cuda")
some = lambda a, b: " ".join(f"w{random.randrange(8000)}" for _ in range(random.randrange(a, b)))
rows = Dataset.from_dict({"anchor": (a := [some(5, 40) for _ in range(400)]), "positive": [some(60, 190) for _ in a], "negative": [some(40, 150) for _ in a]})
loss = MatryoshkaLoss(model, CachedMultipleNegativesRankingLoss(model, mini_batch_size=22), [384, 128, 48])
settings = SentenceTransformerTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=90, max_steps=4, bf16=True, report_to=[], save_strategy="no", disable_tqdm=True,
                                                logging_strategy="no")
SentenceTransformerTrainer(model=model, args=settings, train_dataset=rows, loss=loss).train()
print(model.encode([some(50, 180) for _ in range(100)], batch_size=37, convert_to_tensor=True).shape)
