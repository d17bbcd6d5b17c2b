"""SetFit: pairs by contrast from eight texts a class, a body of sentence-transformers and a head that is trained with it, then predictions."""
import random
import tempfile
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, models
from setfit import SetFitModel, Trainer, TrainingArguments
from setfit.modeling import SetFitHead
from tokenizers import Tokenizer, models as token_models, pre_tokenizers
from transformers import MPNetConfig, MPNetModel, PreTrainedTokenizerFast
torch.manual_seed(0)
random.seed(0)
words = Tokenizer(token_models.WordLevel({f"w{i}": i for i in range(7000)} | {"<pad>": 7000, "<unk>": 7001, "<mask>": 7002}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
folder = tempfile.mkdtemp()
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>", model_max_length=128).save_pretrained(folder)
MPNetModel(MPNetConfig(vocab_size=7008, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, pad_token_id=7000)).save_pretrained(folder)
body = models.Transformer(folder, max_seq_length=128)
body = SentenceTransformer(modules=[body, models.Pooling(384)], device="cuda")
model = SetFitModel(model_body=body, model_head=SetFitHead(in_features=384, out_features=4, device="cuda"))
rows = Dataset.from_dict({"text": [" ".join(f"w{random.randrange(7000)}" for _ in range(20 + random.randrange(80))) for _ in range(32)], "label": [i % 4 for i in range(32)]})
args = TrainingArguments(output_dir=folder + "/out", batch_size=(16, 8), num_epochs=(1, 4), max_steps=12, end_to_end=True, report_to=[], save_strategy="no", body_learning_rate=(2e-5, 5e-6), head_learning_rate=1e-2, show_progress_bar=False)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
print(model.predict(rows["text"][:10]))
