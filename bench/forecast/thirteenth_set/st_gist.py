"""sentence-transformers: CoSENT, then pairs with hard negatives by a GIST guide, batches without duplicates, searches evaluated in between; a small MPNet, fp16."""
import random
import tempfile
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CoSENTLoss, GISTEmbedLoss
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MPNetConfig, MPNetModel, PreTrainedTokenizerFast
try:
    from sentence_transformers.models import Normalize, Pooling, Transformer
except ImportError:
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

random.seed(4)
torch.manual_seed(0)
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(6000)} | {"<pad>": 6000, "<unk>": 6001, "<s>": 6002, "</s>": 6003}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 6002), ("</s>", 6003)])


def encoder(size, layers):
    folder = tempfile.mkdtemp()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>", model_max_length=128).save_pretrained(folder)
    MPNetModel(MPNetConfig(vocab_size=6004, hidden_size=size, num_hidden_layers=layers, num_attention_heads=size // 64, intermediate_size=4 * size, max_position_embeddings=256, pad_token_id=1)).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(folder, max_seq_length=128), Pooling(size, pooling_mode="mean"), Normalize()], device="cuda")


some = lambda a, b: " ".join(f"w{random.randrange(6000)}" for _ in range(random.randrange(a, b)))
model, guide = encoder(512, 6), encoder(256, 3)
pairs = Dataset.from_dict({"sentence1": [some(10, 80) for _ in range(256)], "sentence2": [some(10, 100) for _ in range(256)], "score": [random.random() for _ in range(256)]})
threes = Dataset.from_dict({"anchor": [some(5, 30) for _ in range(256)], "positive": [some(40, 120) for _ in range(256)], "negative": [some(40, 120) for _ in range(256)]})
for rows, loss in ((pairs, CoSENTLoss(model)), (threes, GISTEmbedLoss(model, guide))):
    settings = SentenceTransformerTrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=64, max_steps=3, fp16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", batch_sampler="no_duplicates")
    SentenceTransformerTrainer(model=model, args=settings, train_dataset=rows, loss=loss).train()
texts, asked = model.encode([some(50, 120) for _ in range(500)], batch_size=50, convert_to_tensor=True), model.encode([some(5, 20) for _ in range(40)], convert_to_tensor=True)
print((asked @ texts.T).topk(10).indices.shape)
