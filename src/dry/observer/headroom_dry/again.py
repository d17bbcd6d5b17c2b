"""An operation of the card, once more on the CPU with what is known of its inputs."""
import functools
import os
import sys
import threading

from . import branches, loops, routes
from .frames import by_source, loop_frame, own_frame
from .least import least_places
from .operations import DRAWN, MOST, NUMBERS
from .rules import EXPERTS_AT_MOST, MASKS, Rules
from .variables import owner

WORDS = 64  # as many guessed numbers at most may be those that a model proposes and another chooses
COUNTING = "sum mean cumsum count_nonzero".split()
COUNTS, PATIENCE = 16, 1000  # of one line in one turn of its loop's function

inside = threading.local()  # now: this observer computes; told: the line that reads was said; waiting: a call with a number for a tensor


class Unknown(Exception):
    pass


class Again:
    def __init__(self, torch):
        self.cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        self.rules = Rules(torch)
        self.one, self.door = torch.ones([], device="cpu"), torch.ops.aten.add.Tensor
        self.talk = os.environ.get("HEADROOM_DRY_VALUES_TALK")

    def again(self, op, bare, args, kwargs, skip=(), writes=(), guess=None):
        """(what the operation gives on the CPU, state; state 0: nothing is known; pairs of what it writes).
        `skip`: arguments that are only written, `writes`: those that are written at all, `guess`: for single floats that are unknown."""
        call = self.Call(guess=guess)
        cpu_args = [self.on_cpu(x, call, i in skip, i in writes) for i, x in enumerate(args)]
        cpu_kwargs = {k: self.on_cpu(x, call, k in skip, k in writes) for k, x in kwargs.items() if k != "pin_memory"}
        if bare in DRAWN:
            cpu_kwargs["generator"] = self.rules.random
            if call.state:  # among unknown numbers nothing is drawn: a rule chooses
                call.state, self.rules.drew = 2, True
        if not call.state:
            return None, 0, call.written
        run = op._handle.redispatch_boxed
        if bare == "histc" and not cpu_args[0].dtype.is_floating_point:  # the CPU has it for floating numbers only
            counts = run(self.cpu, cpu_args[0].double(), *cpu_args[1:], **cpu_kwargs)
            return counts.to(args[0].dtype), call.state, call.written
        if any(type(x) in NUMBERS for x in cpu_args):
            run = self.with_number(run)
        return run(self.cpu, *cpu_args, **cpu_kwargs), call.state, call.written

    def again_if_small(self, *arguments):
        """The same. What is too large to be computed, or cannot be, is unknown, and rules apply to it."""
        try:
            return self.again(*arguments)
        except Unknown:
            return None, 0, []

    class Call:  # (no closure that names itself may hold a tensor: it would live until the next collection)
        def __init__(self, later=False, guess=None):
            self.state, self.written, self.later, self.guess = 1, [], later, guess

    def on_cpu(self, x, call, only_written=False, is_written=False):
        torch = self.torch
        if isinstance(x, torch.Tensor):
            if not x.is_cuda:
                if type(x) not in self.plain or x.device.type != "cpu":
                    raise Unknown
                return x
            if not self.on_card(x) or x.numel() > MOST:
                raise Unknown
            lazy = self.later.get(x.data_ptr()) if call.later else None
            if lazy is not None and lazy.view[0] == x.shape and lazy.view[1] == x.stride() and lazy.view[2] is x.dtype and self.alive(lazy):
                call.state = max(lazy.state, call.state) if call.state else 0
                return lazy
            if only_written:
                made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu")
            else:
                made, state = self.twin(x)
                if not state and call.guess is not None and x.numel() == 1 and x.dtype.is_floating_point:
                    made.fill_(call.guess)
                    state = 2
                call.state = 0 if not state or not call.state else max(state, call.state)
            if is_written:
                call.written.append((x, made))
            return made
        if isinstance(x, (list, tuple)):
            return [self.on_cpu(y, call) for y in x]
        if isinstance(x, torch.device):
            return torch.device("cpu")
        if isinstance(x, torch.Generator):
            return self.rules.random
        return x

    def ruled(self, bare, args, kwargs, shapes):
        """Results by a rule, where inputs are unknown; None: no rule."""
        torch, x = self.torch, args[0] if args else None
        if bare == "cat" and self.complements:
            joined = self.joined_masks(*args, **kwargs)
            return None if joined is None else [joined]
        if not isinstance(x, torch.Tensor):
            return None
        floating = x.dtype.is_floating_point
        if bare == "isnan" or bare in ("isposinf", "isneginf"):
            return [torch.zeros(shapes[0], dtype=torch.bool, device="cpu")]
        if bare == "ne" and floating and len(args) > 1 and isinstance(args[1], (int, float)) and args[1] == float("inf"):
            return [torch.ones(shapes[0], dtype=torch.bool, device="cpu")]  # isinf and isfinite ask so
        if bare in ("eq", "ne") and floating and len(args) > 1 and self.is_same(x, args[1]):  # so do isfinite, and `x != x` for isnan
            return [torch.full(shapes[0], bare == "eq", dtype=torch.bool, device="cpu")]
        if bare in ("bitwise_and", "logical_and", "__and__") and x.dtype is torch.bool:
            if any(self.is_known_false(y) for y in args[:2]):
                return [torch.zeros(shapes[0], dtype=torch.bool, device="cpu")]
            both = self.both_masks(args[:2], shapes[0])
            return None if both is None else [both]
        if bare == "any" and (len(args) > 1 or "dim" in kwargs):  # of rows (which beams may still win); of all, a program asks whether something is wrong
            self.rules.masked = True
            return [self.rules.mask(shapes[0])]
        if bare == "any" and not shapes[0] and (self.goes_on_by(COUNTS, PATIENCE) or self.works_on_any()):  # `while unfinished.any()`, `if inside.any()`
            self.say_routed(MASKS)
            return [torch.tensor(self.rules.how != "balanced", device="cpu")]
        if bare in ("any", "all") and not shapes[0] and x.dtype is torch.bool and by_source(branches.goes_on, False):  # `if (out > 5).any()`
            self.measure()
            if self.sequence.way in ("above", "likely"):  # the other answer than the usual one
                return [torch.tensor(bare == "any", device="cpu")]
        if bare == "all" and not shapes[0]:  # also where something else runs before it is read
            return [torch.tensor(True, device="cpu")]
        if bare in COUNTING and x.numel() > 1 and self.is_of_a_mask(x):
            if not shapes[0]:  # so that `x[mask]` has as many
                self.rules.counted = True
                return None if self.waits_for_a_count() else [self.count_of_mask(bare, x, None, shapes[0])]
            if len(args) > 1:  # lengths of padded rows
                self.rules.counted = True
                return [self.count_of_mask(bare, x, args[1] if isinstance(args[1], int) or args[1] is None else list(args[1]), shapes[0])]
        if bare == "topk":
            dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
            largest = args[3] if len(args) > 3 else kwargs.get("largest", True)
            return [None, self.chosen_of(x, shapes[1], dim, largest)]
        if bare == "sort" and len(shapes) == 2:
            dim = kwargs.get("dim", args[1] if len(args) > 1 and not isinstance(args[1], bool) else -1)
            n = shapes[1][dim] if shapes[1] else 1
            if not shapes[1]:
                return [None, torch.zeros([], dtype=torch.int64, device="cpu")]
            along = [1] * len(shapes[1])
            along[dim] = n
            return [None, torch.arange(n, device="cpu").reshape(along).expand(shapes[1])]
        if bare in ("argmax", "argmin", "multinomial"):
            dim = -1 if bare == "multinomial" else args[1] if len(args) > 1 else kwargs.get("dim")
            among = x.numel() if dim is None else x.shape[dim] if x.dim() else 1
            routed = None if bare == "multinomial" or dim is None else self.routed(x, dim, shapes[0], among, False)
            return [self.rules.choice(shapes[0], among, not floating or self.is_of_ones(x)) if routed is None else routed]
        if bare in ("max", "min") and len(shapes) == 2:
            dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
            among = x.shape[dim] if x.dim() else 1
            routed = self.routed(x, dim, shapes[1], among, True)
            return [None, self.rules.choice(shapes[1], among, not floating) if routed is None else routed]
        return None

    def chosen_of(self, x, shape, dim, largest):
        """Indices of a top-k of unknown numbers. Places that the program made least (least.py) are among the largest only where too few others are there."""
        if not x.dim():
            return self.rules.chosen(shape, dim, 1)
        least = least_places(self, x, dim) if largest else None
        if least is None:
            return self.rules.chosen(shape, dim, x.shape[dim])
        others_first = least.to(self.torch.int8).argsort(dim=dim, stable=True)
        others = int((~least).sum(dim).min())
        return others_first.gather(dim, self.rules.chosen(shape, dim, max(others, shape[dim])))

    def routed(self, x, dim, shape, among, tells_values):
        """The largest of a few unknown numbers in each row, where a module chooses by it (the one expert of each token): any of them. None: it does not."""
        if not x.dtype.is_floating_point or not 1 < among <= EXPERTS_AT_MOST or not by_source(routes.is_choice, False, self.torch.nn.Module, tells_values):
            return None
        if len(shape) == x.dim():
            return self.rules.chosen(shape, dim, among)
        dim, shape = dim % x.dim(), list(shape)
        return self.rules.chosen([*shape[:dim], 1, *shape[dim:]], dim, among).squeeze(dim)

    def agreement(self, bare, args):
        """Where guessed whole numbers are the same: a few words that one model proposes and another would choose. Both are the middle one by a rule, so
        all would be the same, so it is an unknown mask. Longer rows (which group each of many points is in) are compared as they are: a loop
        may end once all agree."""
        if bare not in ("eq", "ne") or len(args) < 2 or not all(isinstance(x, self.torch.Tensor) and self.on_card(x) for x in args[:2]):
            return None
        a, b = args[:2]
        if a.shape != b.shape or not 1 < a.numel() <= WORDS or any(x.dtype.is_floating_point or x.dtype is self.torch.bool for x in (a, b)):
            return None
        if a.data_ptr() == b.data_ptr() or any(self.twin(x)[1] < 2 for x in (a, b)):
            return None
        self.rules.agreed = True
        same = self.rules.mask(a.shape)
        return [same if bare == "eq" else ~same]

    @staticmethod
    def is_same(a, b):
        return getattr(b, "is_cuda", False) and (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)

    def is_known_false(self, x):
        if not isinstance(x, self.torch.Tensor) or x.dtype is not self.torch.bool or not self.on_card(x) or x.numel() > MOST:
            return False
        held, state = self.twin(x)
        return state == 1 and not held.any()

    def goes_on_by(self, alone, beside):
        """Whether the test of a `while` asks, and has not asked often in this turn of its loop's function: where only what it asks for ends the loop, and
        where something else may end it, too."""
        frame = own_frame(sys._getframe())
        where = frame and loop_frame(frame)
        if not where or not loops.is_test(where.f_code.co_filename, where.f_lineno):
            return False
        _, _, counts = self.seen(frame, self.counted)
        kind = loops.kind_of(where.f_code.co_filename, where.f_lineno)
        return counts[2] <= (alone if kind == loops.ENDLESS else beside)

    def works_on_any(self):
        """Whether an `if` asks that goes on to work on what the mask has. In a `while`, which that may end, not more often than such a test itself."""
        asks = own_frame(sys._getframe(), anywhere=True)
        if asks is None or not branches.works_on_any(asks, owner):
            return False
        frame = own_frame(sys._getframe())
        where = loop_frame(frame)
        _, _, counts = self.seen(frame, self.counted)
        return where is None or counts[2] <= COUNTS or loops.kind_of(where.f_code.co_filename, where.f_lineno) == loops.FOR

    def waits_for_a_count(self):
        """Whether a loop that a count may end (`while mask.sum() > 0`) has counted often: it gets no number any more, which reads as 0."""
        frame = own_frame(sys._getframe())
        where = frame and loop_frame(frame)
        _, _, counts = self.seen(frame, self.counted)
        return bool(where) and counts[2] > COUNTS and loops.kind_of(where.f_code.co_filename, where.f_lineno) != loops.FOR

    def with_number(self, call):
        """`call`, where a number stands for a tensor. PyTorch unwraps numbers for Python and takes them back only inside a call of an operation
        such as `add` from Python; so the call is made in there."""
        def through_the_door(*args, **kwargs):
            done = []

            def waiting():
                try:
                    done.append(call(*args, **kwargs))
                except BaseException as e:
                    done.append(None)
                    done.append(e)
            inside.waiting = waiting
            with self.torch._C.DisableTorchFunction():
                self.door(self.one, self.one)
            if len(done) > 1:
                raise done[1]
            return done[0]
        return through_the_door

    def shell(self, compute):
        """`compute` runs with PyTorch's own switches off and never raises; nested operations are not looked at."""
        torch = self.torch

        @functools.wraps(compute)
        def run(*arguments):
            before = getattr(inside, "now", False)
            inside.now = True
            try:
                with torch._C.DisableTorchFunction():
                    return compute(*arguments)
            except Unknown:
                return None
            except Exception as e:
                if self.talk:
                    print(f"values: {arguments[0]}: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
                return None
            finally:
                inside.now = before
        return run

    def overload(self, base, overload):
        return getattr(getattr(self.torch.ops.aten, base), overload)
