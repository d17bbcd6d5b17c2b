"""An operation that is computed again: the card does what the program asks, and what is known of its arguments says what its results are."""
import sys

from . import bounds
from .again import inside
from .asserting import holds
from .bounds import SEEDS
from .choices import ADDING, ASKING, CHOICE, CHOOSING, GUESS, PLACING
from .frames import by_source
from .least import ASKED, keep_parts
from .masks import FOLLOWED
from .operations import COMPARISONS, DRAWN, CLEARED, ELEMENTWISE, FEW, FLOATS, FLOATS_LATER, GROWING, LATER, MOST, NOW, NUMBERS
from .reads import PLAIN

OUT = "out", "Scalar_out", "Tensor_out", "self_out"  # overloads that write to what they are given
TURNING = "bitwise_not", "logical_not"  # a mask over
ORDERING = "lt le gt ge".split()
BOUNDED = frozenset(bounds.FOLLOWED + bounds.CHOSEN + bounds.ADDED)
GUARDED = "keep_results keep_two_values keep_bounds keep_fill expected expected_later keep_written keep_padding".split()  # they never raise (Again.shell)


def each_of(out):
    """The results of an operation, which gives one or several."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def is_in_an_optimizer():
    """Moments begin as zeros: hundreds of tensors, which nothing asks."""
    from . import steps
    return steps.is_in("optimizer")


def is_said(bare, args, kwargs):
    """The program says how large the result is; of bincount at least, but one that says how many kinds there are has no more of them."""
    if bare == "bincount":
        return bool(kwargs.get("minlength") or len(args) > 2 and args[2])
    return kwargs.get("output_size") is not None


class Computed:
    """One overload: what its name says, and, from its first call on, what its schema says. A program calls few of those that there are."""

    def __init__(self, values, base, overload, bare):
        self.values, self.base, self.overload, self.bare = values, base, overload, bare
        self.op = None  # until the first call
        self.draws, self.clears, self.fills = bare in DRAWN, bare in CLEARED, bare in ("fill", "zero")
        self.is_coin = bare == "bernoulli"
        self.follows = bare in FOLLOWED and not base.endswith("_") and overload not in OUT
        self.has_bounds = (bare in SEEDS or bare in BOUNDED) and not base.endswith("_") and overload not in OUT
        self.most = FEW if self.draws else FLOATS_LATER  # elements of a floating result that is looked at
        self.reads_nothing = bare in ("fill", "zero", "random", "uniform", "copy", "_cummax_helper", "_cummin_helper") or (
            bare == "bernoulli" and overload == "float")

    def begin(self):
        op = self.values.overload(self.base, self.overload)
        arguments = op._schema.arguments
        self.call = op._handle.redispatch_boxed
        tensors = [i for i, a in enumerate(arguments) if str(a.type) == "Tensor"]
        self.numbers = tensors[1:2] + tensors[:1] + tensors[2:] if self.bare in ELEMENTWISE and len(tensors) > 1 else []  # where a number may stand for one
        self.writes = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.names = [arguments[i].name for i in self.writes]
        only_out = {i for i in self.writes if (arguments[i].is_out if hasattr(arguments[0], "is_out") else arguments[i].kwarg_only)}
        unread = set(self.writes) if self.reads_nothing else only_out
        self.unread = unread | {arguments[i].name for i in unread}
        for name in GUARDED:
            setattr(self, name, self.values.shell(getattr(self, name)))
        self.op = op

    def call_with(self, args):
        """The operation, for these arguments."""
        for i in self.numbers:
            if i < len(args) and type(args[i]) in NUMBERS:
                return self.values.with_number(self.call)
        return self.call

    # ---- results that are new tensors

    def is_nothing_known(self, out, args):
        """Quickly asked of what most operations give: the model's own floats."""
        if not out.is_cuda:
            return True
        if not out.dtype.is_floating_point or out.numel() <= FEW or self.clears:
            return False
        if self.bare == "cat" and out.numel() <= ASKED:  # it may have known parts
            return not any(map(self.values.is_hopeful, args[0]))
        return out.numel() > self.most or not self.values.all_hopeful(args)

    def keep_results(self, name, args, kwargs, out):
        values = self.values
        results = [t for t in each_of(out) if isinstance(t, values.torch.Tensor)]
        if not any(values.on_card(t) and values.wanted(t) for t in results):
            return
        if self.bare in ASKING:
            values.compare_choices(self.bare, args)
            if results[0].numel() == 1:
                if self.bare in ORDERING and values.is_count(args[0]) and values.twin(args[0])[1] == CHOICE:  # counts of masks have runs of their own
                    values.measure(compared=True)
                if values.rules.way:
                    values.compare_numbers(args, PLAIN)
        alone = len(results) == 1 and results[0].numel() > LATER and self.bare not in NOW
        if alone and values.defer(self.op, self.bare, args, kwargs, results[0]):
            return
        made, state = self.made_again(args, kwargs, results)
        if made is None and self.bare in TURNING and args[0].dtype is values.torch.bool:
            values.note_complement(results[0], args[0])
        if made is not None:
            self.keep(zip(results, made), state)
        elif self.clears:
            values.unknown(results)
        elif self.bare == "cat" and len(results) == 1:
            keep_parts(values, results[0], args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0))

    def made_again(self, args, kwargs, results):
        """(values of the results, state); None where nothing is known of them."""
        made, state = self.values.agreement(self.bare, args), 2
        if made is None:
            made, state, _ = self.values.again_if_small(self.op, self.bare, args, kwargs)
        if not state:
            return self.made_by_rule(args, kwargs, results)
        if state >= GUESS and self.bare in PLACING and self.values.is_of_ones(args[0]):
            return self.made_by_rule(args, kwargs, results)
        if state == CHOICE and self.bare in ADDING:
            ones = self.values.ones_of_choices(args[0])
            if ones is not None:
                made, state = self.op(ones, *args[1:], **kwargs), GUESS
        return [t for t in each_of(made) if isinstance(t, self.values.torch.Tensor)], state

    def made_by_rule(self, args, kwargs, results):
        values, bare = self.values, self.bare
        made = values.choose_items(bare, args, kwargs, results) or values.ruled(bare, args, kwargs, [t.shape for t in results])
        if bare in GROWING and not is_said(bare, args, kwargs):
            values.say_open(bare)
        if made is None and bare in COMPARISONS and results[0].numel() == 1:
            values.measure(compared=True)
            compared, state, _ = values.again(self.op, bare, args, kwargs, guess=values.float_at(sys._getframe(), values.compared))
            if state and not compared.all() and by_source(holds, False, bool(values.rules.way)):
                compared = values.torch.ones_like(compared)
            return ([compared], state) if state else (None, 0)
        return made or None, values.rules.last_state if bare in CHOOSING else GUESS

    def keep(self, pairs, state):
        values = self.values
        for t, value in pairs:
            if value is not None and values.on_card(t) and values.wanted(t) and value.shape == t.shape:
                values.keep(t, value, state)
                if state == CHOICE and self.bare in CHOOSING:
                    values.note_choices(t)

    def keep_two_values(self, name, args, kwargs, out):
        if self.is_coin:
            self.values.follow_coins(out)
        else:
            self.values.follow_arithmetic(self.op, self.bare, args, kwargs, out)

    def keep_bounds(self, name, args, kwargs, out):
        self.values.keep_bounds(self.op, self.bare, args, kwargs, out)

    # ---- tensors that are written to, of which `first` is the first

    def targets(self, args, kwargs):
        return self.values.targets(args, kwargs, self.writes, self.names)

    def may_be_known(self, first, args):
        """Whether what is written to `first` is worth a look."""
        if not first.dtype.is_floating_point:
            return True
        if self.fills and self.values.by_engine():
            return False
        if first.numel() <= FEW:
            return True
        if self.draws or first.numel() > self.most_floats() or first.requires_grad:
            return False
        return self.values.all_hopeful(x for i, x in enumerate(args) if i not in self.unread)

    def most_floats(self):
        """How many floats are worth a look: more of zeros, which are kept as a number."""
        return FLOATS_LATER if self.bare == "zero" and not is_in_an_optimizer() else FLOATS

    def number_filled(self, first, args, kwargs):
        """(the number that fills all of `first`, state), which needs no second computation; None: it does."""
        if not self.fills:
            return None
        mask = self.values.mask_of_ones(self.bare, first)
        if not mask:
            floats, n = first.dtype.is_floating_point, first.numel()
            many = FEW < n <= self.most_floats() if floats else n > LATER
            if not many or not self.values.on_card(first) or floats and not self.may_be_known(first, ()):
                return None
        number = 0 if self.bare == "zero" else args[1] if len(args) > 1 else kwargs.get("value")
        return (number, 2 if mask else 1) if type(number) in NUMBERS else None  # a mask is a guess, since not all that writes floats is seen

    def keep_fill(self, name, t, number, state):
        values, torch = self.values, self.values.torch
        values.settle(t)
        values.drop(t)
        if t.dtype.is_floating_point and t.numel() <= FLOATS:
            values.keep(t, torch.full(t.shape, number, dtype=t.dtype, device="cpu") if number else torch.zeros(t.shape, dtype=t.dtype, device="cpu"), state)
        elif values.span(t) == t.numel() <= MOST:
            values.defer_fill(t, number, state)
        elif t.numel() <= MOST:
            values.keep(t, torch.full(t.shape, number, dtype=t.dtype, device="cpu"), 1)

    def expected(self, name, args, kwargs):
        """(pairs of a target and what it will hold, state), before it is written; None: not known."""
        values, targets = self.values, self.targets(args, kwargs)
        for t in targets:
            if values.on_card(t):
                values.settle(t)
        if not any(values.on_card(t) and values.wanted(t) for t in targets):
            return None
        made, state, written = values.again_if_small(self.op, self.bare, args, kwargs, self.unread, (*self.writes, *self.names))
        if state:
            return written, state
        ruled = values.ruled(self.bare, args, kwargs, [t.shape for t in targets]) or ()
        pairs = [(t, value) for t, value in zip(targets, ruled) if value is not None]
        return (pairs, values.rules.last_state if self.bare in CHOOSING else GUESS) if pairs else None

    def expected_later(self, name, first, args, kwargs):
        """What many floats will hold, computed when they are read."""
        values = self.values
        if self.reads_nothing or self.draws or self.writes != [0] or not values.on_card(first):
            return None
        if values.span(first) != first.numel() or not values.all_hopeful(args):
            return None
        return values.in_place(self.op, args, kwargs)

    def keep_written(self, name, targets, expected):
        for t in targets:
            if self.values.on_card(t):
                if not expected:
                    self.values.let_go(t)
                self.values.settle(t)
                self.values.drop(t)
        if expected:
            self.keep(*expected)

    def look_for_padding(self, first, args):
        """A mask of numbers is made of zeros: models fill in -inf where a mask of bools is true."""
        values = self.values
        zeros, values.zeros = values.zeros, values.view_of_zeros(self.bare, first)
        if zeros and self.base == "masked_fill_" and zeros == values.view_of_zeros("zero", first) and type(args[2]) in NUMBERS and values.on_card(args[1]):
            self.keep_padding(self.base, first, args[1], args[2])

    def keep_padding(self, name, t, mask, number):
        held, state = self.values.twin(mask)
        if state and mask.dtype is self.values.torch.bool:  # a guess, since not all that writes floats is seen
            self.values.keep(t, self.values.torch.zeros(t.shape, dtype=t.dtype, device="cpu").masked_fill_(held, number), 2)


def write_of(o, values, base, bare):
    """What is called in place of an operation that writes a tensor it is given."""
    def write(call, keyset, args, kwargs):
        name = o.names[0]
        first = kwargs[name] if name in kwargs else args[o.writes[0]]
        if values.of_masks and first.is_cuda:
            values.mask_is_written(first)
        if values.undrawn and not getattr(inside, "now", False):
            if values.change_later(o.op, bare, first, args[1:], kwargs):
                return first
            values.fulfil((*args, *kwargs.values()))
        out_of_sight = values.is_out_of_sight(first) and not (bare == "zero" and first.numel() <= FLOATS_LATER)
        if not first.is_cuda or out_of_sight or getattr(inside, "now", False):
            out = call(keyset, *args, **kwargs)
            if o.is_coin and first.is_cuda:
                o.keep_two_values(base, args, kwargs, first)
            return out
        filled = o.number_filled(first, args, kwargs)
        if filled:
            out = call(keyset, *args, **kwargs)
            o.keep_fill(base, first, *filled)
            return out
        expected = o.expected(base, args, kwargs) if o.may_be_known(first, args) else None
        many_floats = FLOATS < first.numel() <= FLOATS_LATER and first.dtype.is_floating_point
        later = o.expected_later(base, first, args, kwargs) if many_floats and not expected else None
        out = call(keyset, *args, **kwargs)
        if later:
            values.add_later(later, first)
        else:
            o.keep_written(base, o.targets(args, kwargs), expected)
            o.look_for_padding(first, args)
            if o.is_coin:
                o.keep_two_values(base, args, kwargs, first)
        return out

    return write


def kernel_of(values, base, overload, bare):
    """What is called in place of the operation."""
    o, after, tensor = Computed(values, base, overload, bare), values.after, values.torch.Tensor
    counts_kinds = bare == "bincount"
    is_door = base == "add" and overload == "Tensor"  # by which a number comes in for a tensor (Again.with_number)
    write = write_of(o, values, base, bare)

    def kernel(keyset, *args, **kwargs):
        if o.op is None:
            o.begin()
        if is_door and getattr(inside, "waiting", None) is not None:
            waiting, inside.waiting = inside.waiting, None
            waiting()
        call, keyset = o.call_with(args), keyset & after
        if o.writes:
            return write(call, keyset, args, kwargs)
        if values.undrawn:
            values.fulfil((*args, *kwargs.values()))
        knows_kinds = counts_kinds and is_said(bare, args, kwargs)
        if knows_kinds:
            before, inside.told = getattr(inside, "told", False), True  # what it reads itself needs no words
        try:
            out = call(keyset, *args, **kwargs)
        except BaseException:
            args = kwargs = None  # the traceback must not keep tensors that the program would have let go
            raise
        finally:
            if knows_kinds:
                inside.told = before
        nothing_known = type(out) is tensor and o.is_nothing_known(out, args)
        of_a_mask = o.follows and values.may_follow(args) or o.is_coin and out.is_cuda
        bounded = o.has_bounds and values.may_be_bounded(bare, args)
        if nothing_known and not of_a_mask and not bounded or getattr(inside, "now", False):
            return out
        if not nothing_known:
            o.keep_results(base, args, kwargs, out)
        if of_a_mask:
            o.keep_two_values(base, args, kwargs, out)
        if bounded:
            o.keep_bounds(base, args, kwargs, out)
        return out

    return kernel
