"""A tokenizer made in place, and sentences of random words, for the programs that train on text."""
import random

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHAT = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <eos> {% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"


def tokenizer(vocab=8000):
    names = ["<pad>", "<eos>", "<unk>", "<user>", "<assistant>"]
    ids = {w: i for i, w in enumerate(names + [f"w{i}" for i in range(vocab - len(names))])}
    t = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    fast.chat_template = CHAT
    return fast


def sentence(r, least, most, vocab=7990):
    return " ".join(f"w{r.randrange(vocab)}" for _ in range(r.randint(least, most)))


def dataset(columns, rows=512, seed=0):
    """columns: name -> (least, most) words."""
    r = random.Random(seed)
    return Dataset.from_dict({name: [sentence(r, *span) for _ in range(rows)] for name, span in columns.items()})
