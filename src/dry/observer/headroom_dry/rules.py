"""What is taken for values that a program could not go on without: which experts tokens go to, which word comes next, what a mask hides."""
import os
import sys

from .choices import ALL_WORDS, CHOICE, FEW_ROWS, GUESS, WORD, WORDS, classes_asked
from .frames import own_frame
from .operations import MOST
from .variables import owner

# What is guessed where sizes follow from it, as the reader of the record numbers it (account.h): which experts tokens go to, which elements of a mask are
# true, what the card draws at random, which products torch.compile pads, how many values differ, whether numbers that are compared fall or
# rise, where within its bounds a number is, how long LBFGS searches, on which side of a threshold a number is, whether numbers jump, and which of
# several has the least or the most of them.
EXPERTS, MASKS, DRAWS, PADDINGS, DIFFERENCES, FALLS, BOUNDS, SEARCHES, LEVELS, JUMPS, ORDERS = range(11)
EXPERTS_AT_MOST, CHOSEN_AT_MOST = 1024, 64  # a choice of more, or among more, is none of experts
MOST_DRAWN = 1 << 26  # numbers of which checkpointing may ask again


class Rules:
    """Substitutes for unknown values. HEADROOM_DRY_ROUTING: random (each token to any experts, the same in every run), balanced (as many
    tokens to each), worst (all to the same), or measured:F1,F2,… (shares of the experts). Masks: half of the elements, none
    where routing is balanced, all where it is the worst, nearly all of each where it is nearly. Numbers with bounds: in the
    middle, at the lower end, at the upper one. In all but random LBFGS searches as long as it may (lbfgs.py). `+falls`, `+rises`:
    and numbers that are compared do so, and as the other ways of sequences.py say. `+order:less`, `+order:more`: what asked for most bytes has the least number,
    or the most (orders.py). `+class:3`: all that choose one of several classes choose this one."""

    def __init__(self, torch):
        self.torch = torch
        self.how, _, self.way = os.environ.get("HEADROOM_DRY_ROUTING", "random").partition("+")
        self.order = self.favoured = None
        if self.way.startswith(("order:", "class:")):
            kind, _, which = self.way.partition(":")
            self.order, self.favoured, self.way = (which, None, "") if kind == "order" else (None, int(which), "")
        self.nearly = self.how == "nearly"
        if self.nearly:
            self.how = "worst"
        self.shares = None
        if self.how.startswith("measured:"):
            self.shares = torch.tensor([float(x) for x in self.how[9:].split(",")], dtype=torch.float64, device="cpu")
        self.random = torch.Generator(device="cpu").manual_seed({"balanced": 8, "worst": 9}.get(self.how, 7))  # other draws in other runs
        self.classes = torch.Generator(device="cpu").manual_seed(11)
        self.last_among, self.last_state = 0, CHOICE
        self.others_asked = []  # classes that the program asks for in whole numbers of its source, but for the first one
        self.drawn = {}  # by the module that asked: its last choice
        self.routed = False  # a choice was made that another routing makes in another way
        self.picked = False  # the best of many were chosen: boxes of a detector, not experts
        self.drew = False  # numbers were drawn here that a card draws in another way
        self.agreed = False  # so was whether two guesses are the same
        self.masked = False  # so was of which rows of a mask any is true
        self.counted = False  # so was how many of a mask are true
        self.copies = {}  # where a copy of a mask lies that is nearly full, by its address: the address that says how many it lacks

    def chosen(self, shape, dim, among):
        """Indices of a top-k of `among` unknown numbers along `dim`."""
        torch = self.torch
        self.last_state = GUESS
        shape = list(shape)
        dim = dim % max(len(shape), 1)
        if not shape:
            return torch.zeros([], dtype=torch.int64, device="cpu")
        k = shape.pop(dim)
        if k < among:
            self.routed |= among <= EXPERTS_AT_MOST and k <= CHOSEN_AT_MOST
            self.picked |= among > EXPERTS_AT_MOST or k > CHOSEN_AT_MOST
        asker = self.module_of(sys._getframe()), *shape, k, among
        if asker in self.drawn and torch._C._current_graph_task_id() != -1:  # checkpointing runs it again: the same tokens go to the same experts
            return self.drawn[asker]
        rows = 1
        for n in shape:
            rows *= n
        if self.shares is not None and len(self.shares) == among:
            picks = torch.multinomial(self.shares.expand(rows, among), k, replacement=False, generator=self.random)
        elif self.how == "worst":
            picks = torch.arange(k, device="cpu").expand(rows, k)
        elif self.how == "random" and rows * among <= MOST:
            picks = torch.rand(rows, among, generator=self.random, device="cpu").topk(k)[1]
        elif self.how == "random":  # of many rows each one's first choice is drawn, and its others follow in even steps: a hundredth of the time
            picks = (torch.randint(among, (rows, 1), generator=self.random, device="cpu") + torch.arange(k, device="cpu") * (among // k)) % among
        else:
            picks = (torch.arange(rows * k, device="cpu").reshape(rows, k)) % among
        made = picks.reshape(shape + [k]).movedim(-1, dim)
        self.remember(asker, made)
        return made

    def remember(self, asker, made):
        if asker[0]:
            self.drawn.pop(asker, None)
            self.drawn[asker] = made
        while len(self.drawn) > 1 and sum(x.numel() for x in list(self.drawn.values())) > MOST_DRAWN:  # pictures of many sizes
            del self.drawn[next(iter(self.drawn))]

    def module_of(self, frame):
        """The module whose method asks; 0: none does."""
        while frame is not None:
            asker = owner(frame)
            if isinstance(asker, self.torch.nn.Module):
                return id(asker)
            frame = frame.f_back
        return 0

    def choice(self, shape, among, of_places=False):
        """Which of `among` unknown numbers is the largest, in each row. Of words, and of few rows, the one in the middle: no word that ends a text is there. Of the
        classes of many rows (pixels, tokens) each may be any. In the other runs it is the first, or the last, of all (but for words in few rows), or of
        many rows each class as often, or one for all (one_class). `of_places`: where a row of a mask is true for the first time."""
        torch, n = self.torch, 1
        self.last_among = among
        for s in shape:
            n *= s
        self.last_state = WORD if n <= FEW_ROWS and WORDS < among <= ALL_WORDS and not of_places else CHOICE
        if n <= FEW_ROWS or among > WORDS or of_places:
            at = among // 2 if self.how == "random" or self.last_state == WORD else 0 if self.how == "balanced" else self.last_class(among)
            return torch.full(list(shape), at, dtype=torch.int64, device="cpu")
        asker = self.module_of(sys._getframe()), "choice", *shape, among
        if asker in self.drawn and torch._C._current_graph_task_id() != -1:
            return self.drawn[asker]
        if self.how == "random":
            self.others_asked = self.others_asked or [c for c in dict.fromkeys(self.asked(among)[1:]) if c != among - 1]
            made = torch.randint(among, (n,), generator=self.classes, device="cpu")
        elif self.how == "balanced":
            made = torch.arange(n, device="cpu") % among
        else:
            made = self.one_class(n, among)
        made = made.reshape(list(shape))
        self.remember(asker, made)
        return made

    @staticmethod
    def asked(among):
        """The classes that the program asks for (`if word == 7`, `np.where(pred.cpu() == 3)`), by its source."""
        frame = own_frame(sys._getframe())
        return [c for c in classes_asked(frame.f_code.co_filename) if 0 <= c < among] if frame is not None else []

    def one_class(self, n, among):
        """All rows choose the class that the program asks for, if it asks for one. In the run with nearly full masks most choose another, and a few each other one."""
        asked = self.favoured if self.favoured is not None and self.favoured < among else (self.asked(among) or [0])[0]
        if not self.nearly:
            return self.torch.full((n,), asked, dtype=self.torch.int64, device="cpu")
        made = self.torch.full((n,), 0 if asked else among - 1, dtype=self.torch.int64, device="cpu")
        each = min(among, n // 4)  # each class has a row: what is made of how many there are is as large as it may be beside the largest class
        made[1:1 + each] = self.torch.arange(each, device="cpu")
        made[::64] = asked
        return made

    def last_class(self, among):
        """The last of all; in one of the runs the first that the program asks for, if no other run has it."""
        asked = self.asked(among) if self.nearly else ()
        return next((c for c in asked if 0 < c < among - 1 and c != among // 2), max(among - 1, 0))

    def lacks(self, mask):
        """How many places a mask lacks of which nearly all are true: up to one in 64, by its address, so that whoever asks again, or of a copy, is told
        the same."""
        at = mask.data_ptr()
        return mask.numel() // 64 * (self.copies.get(at, at) // 512 * 40503 % 61) // 61 if self.nearly else 0

    def copied(self, to, source):
        """`to` becomes a copy of `source`, in whatever type: it lacks as many places."""
        if self.nearly:
            at = source.data_ptr()
            self.copies[to.data_ptr()] = self.copies.get(at, at)

    def how_many(self, mask):
        """So many elements of a mask are true."""
        n = mask.numel()
        return n - self.lacks(mask) if self.how == "worst" else 0 if self.how == "balanced" else (n + 1) // 2

    def mask(self, shape, lacks=0):
        torch = self.torch
        n = 1
        for s in shape:
            n *= s
        one = torch.full((n,), self.how != "balanced", dtype=torch.bool, device="cpu")
        if self.how != "worst":
            one[1::2] = False
        if lacks:
            one[::n // lacks][:lacks] = False
        return one.reshape(list(shape))
