"""Values: small integer, bool and scalar operations on the card are computed again on the CPU, and the library keeps the results by address.

Each operation of the tables below gets a kernel at the dispatch key BackendSelect: below autograd, above the card, in every thread. The kernel calls
what was there before, so the program's memory does not change. (A TorchDispatchMode would change it: `isTensorSubclassLike` becomes true, and
autograd then adds gradients out of place. docs/decisions/dry-values.md.) Tensors of other keys (fake, DTensor, vmap) are handled above this key.

An input is known, guessed, or unknown. A result of a guess is a guess. An unknown input makes the result unknown, or, where a program could
not go on, a guess by a rule (`Rules`). An unknown integer or bool that the program reads is 0, an unknown float PLAIN."""
import collections
import contextlib
import ctypes
import functools
import os
import struct
import sys
import threading
import time

from . import library, loops

MOST = int(os.environ.get("HEADROOM_DRY_VALUES_MOST", 1 << 22))  # elements of an integer tensor that is computed
NUMBERS = frozenset((int, float, bool, complex))
FEW = 64  # elements of a floating one
LATER = 1 << 15  # elements: larger results are computed when they are read, and most never are
COPIED = 1 << 18  # elements: the library keeps larger copies in no case
# Reads of unknown values by one line in one turn of its loop's function, after which it waits for a change that never comes: in a `while` that
# something else may end, in one that only this value ends, and in a `for`, which ends by itself.
LOOP = int(os.environ.get("HEADROOM_DRY_LOOP", 20000))
ENDLESS, ENDING = min(LOOP, 1500), 10 * LOOP
# Of integers, which no turn changes, these suffice where they have taken so long.
FEW_READS, LONG_S = min(LOOP, 200), float(os.environ.get("HEADROOM_DRY_LOOP_S", 5))
# An unknown float, as a loss, a norm or a share may be: positive, below 1, and no number whose logarithm, or distance to a half or to 1, is 0.
# The forecast of a program that ends early with it runs that program again with another.
PLAIN = float(os.environ.get("HEADROOM_DRY_FLOAT", 0.75))
# A line that reads one so often, in one call and one step, waits for it to fall or to rise. The next 100 reads give one, then the other.
PATIENCE, FALLEN, RISEN = 1000, 1e-12, 100.0
COMPARISONS = "eq ne lt le gt ge logical_not logical_and logical_or logical_xor".split()

ELEMENTWISE = """add sub rsub mul div true_divide floor_divide remainder fmod neg abs reciprocal sqrt rsqrt pow exp exp2 expm1 log log2 log10 log1p ceil
floor round trunc sign clamp clamp_min clamp_max maximum minimum fmax fmin lerp where masked_fill eq ne lt le gt ge isnan isposinf isneginf
logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ sigmoid tanh gcd fill""".split()
OTHERS = """sum mean prod cumsum cumprod cummax cummin _cummax_helper _cummin_helper amax amin aminmax min max all any argmax argmin sort topk kthvalue
median mode count_nonzero isin cat index index_select gather take scatter scatter_add scatter_reduce index_put _index_put_impl index_add
index_fill index_copy masked_scatter put tril triu flip roll repeat_interleave searchsorted bucketize bincount histc arange linspace eye masked_select
random randperm bernoulli uniform multinomial copy zero logcumsumexp nansum unfold_copy""".split()
NOW = "histc random randperm bernoulli uniform multinomial".split()  # never computed later
DRAWN = "random randperm bernoulli uniform multinomial".split()
# Called by another overload with a number that lies on the card, which PyTorch cannot show to Python; that overload is seen instead.
LEFT = "aten::pow.Tensor_Tensor aten::pow.Tensor_Tensor_out aten::pow_.Tensor aten::isin.Tensor_Tensor_out".split()
PRODUCTS = "mm addmm bmm baddbmm addmv addbmm dot".split()
SEARCHES = ("searchsorted", "Scalar"), ("bucketize", "Scalar")
READING = "nonzero _unique2 unique_dim unique_consecutive unique_dim_consecutive equal".split()  # they read a count of their own inside

_inside = threading.local()
LAZY = ctypes.create_string_buffer(b"\x5a", 1)


class Lazy:
    """An operation on the CPU whose result was not needed yet: its arguments as they were."""
    __slots__ = "run args kwargs state view begin end done".split()

    def __init__(self):
        self.done = None


class Rules:
    """Substitutes for unknown values. HEADROOM_DRY_ROUTING: random (each token to any experts, the same in every run), balanced (as many
    tokens to each), worst (all to the same), or measured:F1,F2,… (shares of the experts). Masks: half of the elements, or all where routing is the
    worst."""

    def __init__(self, torch):
        self.torch = torch
        self.how = os.environ.get("HEADROOM_DRY_ROUTING", "random")
        self.shares = None
        if self.how.startswith("measured:"):
            self.shares = torch.tensor([float(x) for x in self.how[9:].split(",")], dtype=torch.float64, device="cpu")
        self.random = torch.Generator(device="cpu").manual_seed(7)
        self.routed = False  # a choice was made that another routing makes in another way

    def chosen(self, shape, dim, among):
        """Indices of a top-k of `among` unknown numbers along `dim`."""
        torch = self.torch
        shape = list(shape)
        dim = dim % max(len(shape), 1)
        if not shape:
            return torch.zeros([], dtype=torch.int64, device="cpu")
        k = shape.pop(dim)
        self.routed |= k < among
        rows = 1
        for n in shape:
            rows *= n
        if self.shares is not None and len(self.shares) == among:
            picks = torch.multinomial(self.shares.expand(rows, among), k, replacement=False, generator=self.random)
        elif self.how == "worst":
            picks = torch.arange(k, device="cpu").expand(rows, k)
        elif self.how == "random" and rows * among <= 1 << 24:
            picks = torch.rand(rows, among, generator=self.random, device="cpu").topk(k)[1]
        else:
            picks = (torch.arange(rows * k, device="cpu").reshape(rows, k)) % among
        return picks.reshape(shape + [k]).movedim(-1, dim)

    def middle(self, shape, among):
        """The largest of `among` unknown numbers is the one in the middle: no word that ends a text is there."""
        return self.torch.full(list(shape), among // 2, dtype=self.torch.int64, device="cpu")

    def mask(self, shape):
        torch = self.torch
        n = 1
        for s in shape:
            n *= s
        one = torch.ones(n, dtype=torch.bool, device="cpu")
        if self.how != "worst":
            one[1::2] = False
        return one.reshape(list(shape))


class Values:
    def __init__(self, torch):
        self.torch = torch
        self.library = torch.library.Library("aten", "IMPL")
        self.after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self.cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        self.plain = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer} if hasattr(torch.nn, "Buffer") else {torch.Tensor, torch.nn.Parameter}
        self.rules = Rules(torch)
        self.reads, self.compared = {}, {}  # by line: reads in all; a call of its loop's function, reads in that call since the last step
        self.waiting = {}  # by line: of its loop, when it began, what the card was given and how often floats were compared by then
        self.compares = 0
        self.as_bytes = {}  # by (dtype, number)
        self.later = {}
        self.said_routed = False
        self.compute_now = self.shell(lambda _, lazy: self.store_lazy(_, lazy))
        self.one, self.door = torch.ones([], device="cpu"), torch.ops.aten.add.Tensor
        self.talk = os.environ.get("HEADROOM_DRY_VALUES_TALK")
        self.registered = 0
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        wanted = set(ELEMENTWISE) | set(OTHERS) | set(READING)
        overloads = collections.defaultdict(list)
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::"):
                base, _, overload = name[6:].partition(".")
                overloads[base].append((name, overload))
        for base, all_of in overloads.items():
            bare = base[:-1] if base.endswith("_") and not base.endswith("__") else base
            for name, overload in all_of:
                if name in LEFT:
                    continue
                if bare in wanted and (has(name, "CUDA") or base in ("copy_", "masked_fill_", "zero_")) and not has(name, "BackendSelect"):
                    kind = self.searching if (bare, overload) in SEARCHES else self.reading if bare in READING else self.copying if base == "copy_" else self.computing
                elif base.startswith("_foreach_") and base.endswith("_") or base.startswith("_fused_adam") or base == "_fused_sgd_" or base == "_fused_adagrad_":
                    if not has(name, "CUDA"):
                        continue
                    kind = self.forgetting
                elif base == "_amp_update_scale_":
                    kind = self.computing
                elif base == "_local_scalar_dense":
                    kind = self.scalar
                elif self.overwrites(base, overload) and has(name, "CUDA") and not has(name, "BackendSelect"):
                    kind = self.forgetting
                else:
                    continue
                self.register(name, base, overload, bare, kind)

    def overwrites(self, base, overload):
        """An operation that is not computed again here, and may be called with a tensor whose values are known. Gradients stay finite (_amp_)."""
        in_place = base.endswith("_") and not base.endswith("__") and not base.startswith("_amp_") and base not in ("resize_", "set_")
        return in_place or overload == "out" and base in PRODUCTS

    def register(self, name, base, overload, bare, kind):
        try:
            kernel = kind(base, overload or "default", bare)
            self.library.impl(name[6:] if overload else base, kernel, "BackendSelect", with_keyset=True)
            self.registered += 1
        except Exception as e:  # an operation of another version: its values stay unknown
            if self.talk:
                print(f"values: {name}: {e}", file=sys.stderr)

    # ---- results that are computed when they are read

    def defer(self, op, bare, args, kwargs, t):
        """True: `t` can be computed on demand."""
        call = self.Call(later=True)
        lazy = Lazy()
        lazy.args = [self.on_cpu(x, call) for x in args]
        lazy.kwargs = {k: self.on_cpu(x, call) for k, x in kwargs.items() if k != "pin_memory"}
        if not call.state:
            return False
        lazy.run, lazy.state = op._handle.redispatch_boxed, call.state
        self.add_later(lazy, t)
        return True

    def defer_fill(self, t, value, state):
        lazy = Lazy()
        full, shape, dtype = self.torch.full, t.shape, t.dtype
        lazy.args, lazy.kwargs, lazy.state, lazy.run = [], {}, state, lambda _: full(shape, value, dtype=dtype, device="cpu")
        self.add_later(lazy, t)

    def add_later(self, lazy, t):
        lazy.view = t.shape, t.stride(), t.dtype, self.span(t)
        lazy.begin = t.data_ptr()
        lazy.end = lazy.begin + lazy.view[3] * t.element_size()
        if len(self.later) >= 64:
            self.prune()
        library.forget(lazy.begin, lazy.end - lazy.begin)
        library.know(lazy.begin, 1, LAZY)  # goes with the block, or with what is written over it
        self.later[lazy.begin] = lazy

    def alive(self, lazy):
        held = self.scratch(1)
        return library.known(lazy.begin, 1, held) == 1 and held[0] == b"\x5a"

    def prune(self):
        for begin, lazy in list(self.later.items()):
            if not self.alive(lazy):
                del self.later[begin]
        while len(self.later) >= 64:
            begin, lazy = next(iter(self.later.items()))
            del self.later[begin]
            library.forget(begin, lazy.end - begin)

    def computed(self, lazy):
        if lazy.done is None:
            args = [self.computed(x) if type(x) is Lazy else [self.computed(y) if type(y) is Lazy else y for y in x] if type(x) is list else x
                    for x in lazy.args]
            kwargs = {k: self.computed(x) if type(x) is Lazy else x for k, x in lazy.kwargs.items()}
            run = self.with_number(lazy.run) if any(type(x) in NUMBERS for x in args) else lazy.run
            lazy.done = run(self.cpu, *args, **kwargs)
            lazy.args = lazy.kwargs = None
        return lazy.done

    def settle(self, t):
        """What `t` has of such results is computed now."""
        if not self.later:
            return
        begin = t.data_ptr()
        end = begin + self.span(t) * t.element_size()
        for at, lazy in list(self.later.items()):
            if at < end and begin < lazy.end:
                del self.later[at]
                if self.alive(lazy):
                    self.compute_now(lazy.begin, lazy)

    def store_lazy(self, name, lazy):
        shape, stride, dtype, n = lazy.view
        library.forget(lazy.begin, lazy.end - lazy.begin)
        value = self.computed(lazy)
        if value.shape == shape:
            held = self.torch.empty(n, dtype=dtype, device="cpu")
            self.torch.as_strided(held, shape, stride, 0).copy_(value)
            (library.know if lazy.state == 1 else library.guess)(lazy.begin, lazy.end - lazy.begin, held.data_ptr())

    # ---- the card's tensors and their twins on the CPU

    def on_card(self, t):
        return t.is_cuda and type(t) in self.plain and t.layout is self.torch.strided and not t.is_quantized

    @staticmethod
    def span(t):
        if not t.numel():
            return 0
        n = 1
        for size, stride in zip(t.shape, t.stride()):
            n += (size - 1) * stride
        return n

    def twin(self, t):
        """(a CPU tensor of the same values, 0 unknown, 1 known, 2 guessed)"""
        torch = self.torch
        self.settle(t)
        n = self.span(t)
        held = torch.empty(max(n, 1), dtype=t.dtype, device="cpu")
        state = library.known(t.data_ptr(), n * t.element_size(), held.data_ptr()) if n else 1
        return torch.as_strided(held, t.shape, t.stride(), 0), state

    def keep(self, t, value, state):
        """The card's `t` holds `value` from now on."""
        if not t.numel():
            return
        if value.dtype is not t.dtype:
            value = value.to(t.dtype)
        store = library.know if state == 1 else library.guess
        n, size = self.span(t), t.element_size()
        if n == t.numel() and value.stride() == t.stride():
            store(t.data_ptr(), n * size, value.data_ptr())
            return
        if n == t.numel():  # dense, whatever the order of its strides
            held = self.torch.empty(n, dtype=t.dtype, device="cpu")
            self.torch.as_strided(held, t.shape, t.stride(), 0).copy_(value)
            store(t.data_ptr(), n * size, held.data_ptr())
            return
        value = value.contiguous()
        begin, source = t.data_ptr(), value.data_ptr()
        inner, offsets = self.pieces(t)
        for k, at in enumerate(offsets):
            store(begin + at * size, inner * size, source + k * inner * size)

    @staticmethod
    def pieces(t):
        """(elements that lie beside each other, where each such piece begins), in the order of a contiguous copy."""
        inner, last, offsets = 1, t.dim(), [0]
        while last and t.stride(last - 1) == inner:
            last -= 1
            inner *= t.shape[last]
        for d in range(last):
            offsets = [at + i * t.stride(d) for at in offsets for i in range(t.shape[d])]
        return inner, offsets

    def drop(self, t):
        n, size, begin = self.span(t), t.element_size(), t.data_ptr()
        if n == t.numel() or n > COPIED:
            if n:
                library.forget(begin, n * size)
            return
        inner, offsets = self.pieces(t)  # what lies between stays known
        for at in offsets:
            library.forget(begin + at * size, inner * size)

    def mask_of_ones(self, bare, t):
        """Whether a fill may be `torch.ones(batch, length)`, a mask that is floating until the model asks whether all of it is true."""
        return bare == "fill" and FEW < t.numel() <= COPIED and t.dtype.is_floating_point and t.dim() > 1 and not t.requires_grad and self.on_card(t)

    def wanted(self, t):
        return t.numel() <= (FEW if t.dtype.is_floating_point or t.dtype.is_complex else MOST)

    # ---- an operation on the CPU

    def again(self, op, bare, args, kwargs, skip=(), writes=(), guess=None):
        """(what the operation gives on the CPU, state; state 0: nothing is known; pairs of what it writes).
        `skip`: arguments that are only written, `writes`: those that are written at all, `guess`: for single floats that are unknown."""
        call = self.Call(guess=guess)
        cpu_args = [self.on_cpu(x, call, i in skip, i in writes) for i, x in enumerate(args)]
        cpu_kwargs = {k: self.on_cpu(x, call, k in skip, k in writes) for k, x in kwargs.items() if k != "pin_memory"}
        if bare in DRAWN:
            cpu_kwargs["generator"] = self.rules.random
            if call.state:
                call.state = 2
        if not call.state:
            return None, 0, call.written
        run = op._handle.redispatch_boxed
        if bare == "histc" and not cpu_args[0].dtype.is_floating_point:  # the CPU has it for floating numbers only
            counts = run(self.cpu, cpu_args[0].double(), *cpu_args[1:], **cpu_kwargs)
            return counts.to(args[0].dtype), call.state, call.written
        if any(type(x) in NUMBERS for x in cpu_args):
            run = self.with_number(run)
        return run(self.cpu, *cpu_args, **cpu_kwargs), call.state, call.written

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
        if not isinstance(x, torch.Tensor):
            return None
        floating = x.dtype.is_floating_point
        if bare == "isnan" or bare in ("isposinf", "isneginf"):
            return [torch.zeros(shapes[0], dtype=torch.bool, device="cpu")]
        if bare == "ne" and floating and len(args) > 1 and isinstance(args[1], (int, float)) and args[1] == float("inf"):
            return [torch.ones(shapes[0], dtype=torch.bool, device="cpu")]  # isinf and isfinite ask so
        if bare == "topk":
            dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
            return [None, self.rules.chosen(shapes[1], dim, x.shape[dim] if x.dim() else 1)]
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
            return [self.rules.middle(shapes[0], among)]
        if bare in ("max", "min") and len(shapes) == 2:
            dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
            return [None, self.rules.middle(shapes[1], x.shape[dim] if x.dim() else 1)]
        return None

    # ---- kernels

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
            _inside.waiting = waiting
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
            before = getattr(_inside, "now", False)
            _inside.now = True
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
                _inside.now = before
        return run

    def overload(self, base, overload):
        return getattr(getattr(self.torch.ops.aten, base), overload)

    def computing(self, base, overload, bare):
        torch, after, on_card = self.torch, self.after, self.on_card
        tensor, op, call, skip, writes, names = torch.Tensor, None, None, (), None, ()
        second = ()  # second: where a number may stand for a tensor
        is_door = base == "add" and overload == "Tensor"
        fills = bare in ("fill", "zero")
        overwritten = bare in ("fill", "zero", "random", "uniform", "copy", "_cummax_helper", "_cummin_helper") or (bare == "bernoulli" and overload == "float")

        def begin():
            nonlocal op, call, skip, writes, names, second
            op = self.overload(base, overload)
            arguments = op._schema.arguments
            second = [i for i, a in enumerate(arguments) if str(a.type) == "Tensor"]
            second = second[1:2] + second[:1] + second[2:] if bare in ELEMENTWISE and len(second) > 1 else []
            writes = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
            names = [arguments[i].name for i in writes]
            outs = {i for i in writes if arguments[i].is_out} if hasattr(arguments[0], "is_out") else {i for i in writes if arguments[i].kwarg_only}
            skip = set(writes) if overwritten else outs
            skip |= {arguments[i].name for i in skip}
            call = op._handle.redispatch_boxed

        @self.shell
        def keep_results(name, args, kwargs, out):
            results = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, tensor)]
            if not results or not any(on_card(t) and self.wanted(t) for t in results):
                return
            if len(results) == 1 and results[0].numel() > LATER and bare not in NOW and self.defer(op, bare, args, kwargs, results[0]):
                return
            made, state, _ = self.again(op, bare, args, kwargs)
            if state:
                made = [t for t in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(t, tensor)]
            else:
                made = self.ruled(bare, args, kwargs, [t.shape for t in results])
                state = 2
                if made is None and bare in COMPARISONS and results[0].numel() == 1:
                    made, state, _ = self.again(op, bare, args, kwargs, guess=self.float_at(sys._getframe(), self.compared))
                    made = state and [made]
                if not made:
                    return
            for t, value in zip(results, made):
                if value is not None and on_card(t) and self.wanted(t) and value.shape == t.shape:
                    self.keep(t, value, state)

        @self.shell
        def fill(name, t, value, state=1):
            self.settle(t)
            self.drop(t)
            if self.span(t) == t.numel() <= MOST:
                self.defer_fill(t, value, state)
            elif t.numel() <= MOST:
                self.keep(t, torch.full(t.shape, value, dtype=t.dtype, device="cpu"), 1)

        @self.shell
        def prepare(name, args, kwargs):
            targets = self.targets(args, kwargs, writes, names)
            for t in targets:
                if on_card(t):
                    self.settle(t)
            if not any(on_card(t) and self.wanted(t) for t in targets):
                return None
            made, state, written = self.again(op, bare, args, kwargs, skip, (*writes, *names))
            if state:
                return [(t, v, state) for t, v in written]
            ruled = self.ruled(bare, args, kwargs, [t.shape for t in targets])
            return ruled and [(t, v, 2) for t, v in zip(targets, ruled) if v is not None]

        @self.shell
        def finish(name, targets, made):
            for t in targets:
                if on_card(t):
                    self.settle(t)
                    self.drop(t)
            for t, value, state in made or ():
                if on_card(t) and self.wanted(t) and value.shape == t.shape:
                    self.keep(t, value, state)

        def kernel(keyset, *args, **kwargs):
            if op is None:
                begin()
            waiting = getattr(_inside, "waiting", None) if is_door else None
            if waiting is not None:
                _inside.waiting = None
                waiting()
            down = call
            for i in second:
                if i < len(args) and type(args[i]) in NUMBERS:
                    down = self.with_number(call)
                    break
            if not writes:
                try:
                    out = down(keyset & after, *args, **kwargs)
                except BaseException:
                    args = kwargs = None  # the traceback must not keep tensors that the program would have let go
                    raise
                if type(out) is tensor:
                    if not out.is_cuda or (out.numel() > FEW and out.dtype.is_floating_point):
                        return out
                if not getattr(_inside, "now", False):
                    keep_results(base, args, kwargs, out)
                return out
            first = kwargs[names[0]] if names[0] in kwargs else args[writes[0]]
            if not first.is_cuda or (first.dtype.is_floating_point and first.numel() > COPIED) or getattr(_inside, "now", False):
                return down(keyset & after, *args, **kwargs)
            mask = fills and self.mask_of_ones(bare, first)
            if mask or (fills and first.numel() > LATER and not first.dtype.is_floating_point and on_card(first)):
                value = 0 if bare == "zero" else args[1] if len(args) > 1 else kwargs.get("value")
                if type(value) in NUMBERS:
                    out = down(keyset & after, *args, **kwargs)
                    fill(base, first, value, 2 if mask else 1)  # a guess, since not all that writes floats is seen
                    return out
            made = prepare(base, args, kwargs) if first.numel() <= FEW or not first.dtype.is_floating_point else None
            out = down(keyset & after, *args, **kwargs)
            finish(base, self.targets(args, kwargs, writes, names), made)
            return out
        return kernel

    def targets(self, args, kwargs, writes, names):
        return [kwargs[n] if n in kwargs else args[i] for i, n in zip(writes, names) if n in kwargs or i < len(args)]

    def copying(self, base, overload, bare):
        """copy_: plain copies are the library's; what converts, or has gaps, is done here. Reads of the card by a copy are counted by line."""
        after, op = self.after, None

        @self.shell
        def convert(name, to, source):
            if not self.wanted(to) or not self.on_card(to):
                return None
            if type(source) in NUMBERS:
                return self.torch.tensor(source, device="cpu"), 1
            if source.is_cuda and source.numel() <= MOST and self.on_card(source):
                return self.twin(source)
            return None

        @self.shell
        def finish(name, to, made):
            self.drop(to)
            if made and made[1]:
                self.keep(to, made[0].expand(to.shape), made[1])

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            to, source = args[0], args[1]
            if type(source) in NUMBERS:
                made = convert(base, to, source) if to.is_cuda else None
                out = self.with_number(op._handle.redispatch_boxed)(keyset & after, *args, **kwargs)
                if made:
                    finish(base, to, made)
                return out
            if getattr(_inside, "now", False) or not (to.is_cuda or source.is_cuda):
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if self.later:
                for t in (to, source):
                    if self.on_card(t):
                        self.settle(t)
            if not to.is_cuda:
                with self.unknown_as(self.read(source)):
                    return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if not source.is_cuda or (to.dtype.is_floating_point and to.numel() > COPIED):
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if to.dtype == source.dtype and to.is_contiguous() and source.is_contiguous() and to.shape == source.shape:
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            made = convert(base, to, source)
            out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if self.on_card(to):
                finish(base, to, made)
            return out
        return kernel

    def reading(self, base, overload, bare):
        """Operations that read a count inside themselves: the count is computed first and given to that read."""
        torch, after, op = self.torch, self.after, None

        @self.shell
        def prepare(name, args, kwargs):
            x = args[0]
            if not self.on_card(x) or x.numel() > MOST:
                return None
            args = (x,) + tuple(args[1:])
            made, state, _ = self.again(op, bare, args, {k: v for k, v in kwargs.items() if k != "out"})
            if bare == "equal":  # reads one bool; of unknown ones the library says that they are equal
                if state:
                    library.answer(bytes([made]), 1, int(state == 1))
                return state and ((), state)
            if not state:
                value = self.twin(x)[0] if x.dtype is not torch.bool else None
                if bare == "nonzero":
                    made = self.rules.mask(x.shape).nonzero()
                else:  # as if every value were another one
                    value = torch.arange(x.numel(), device="cpu").reshape(x.shape).to(x.dtype)
                    made = op(value, *args[1:], **kwargs)
                state = 2
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            count = made[0].shape[args[1] if bare == "unique_dim" else 0]
            if bare == "_unique2" and x.dtype is torch.bool:  # asks how many are true
                count = int(made[2].sum() if state == 2 else self.twin(x)[0].sum())
            for kind in torch.int32, torch.int64:
                one = torch.tensor([count], dtype=kind, device="cpu")
                library.answer(one.data_ptr(), one.numel() * one.element_size(), int(state == 1))
            return made, state

        @self.shell
        def finish(name, out, prepared):
            library.unanswer()
            if prepared:
                made, state = prepared
                for t, value in zip(out if isinstance(out, (tuple, list)) else [out], made):
                    if self.on_card(t) and self.wanted(t) and t.shape == value.shape:
                        self.keep(t, value, state)

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if not args[0].is_cuda or getattr(_inside, "now", False):
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            prepared = prepare(base, args, kwargs)
            if not prepared or prepared[1] == 2:
                self.count(args[0])
                self.say_routed()
            _inside.told = True  # of its own reads there is nothing more to say
            try:
                out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            except BaseException:
                library.unanswer()
                raise
            finally:
                _inside.told = False
            finish(base, out, prepared)
            return out
        return kernel

    def searching(self, base, overload, bare):
        """A search for a number puts it on the card, in a form that PyTorch cannot show to Python: it is put there as a tensor."""
        torch, after, op, by_tensor = self.torch, self.after, None, None

        def kernel(keyset, *args, **kwargs):
            nonlocal op, by_tensor
            if op is None:
                op, by_tensor = self.overload(base, overload), self.overload(base, "Tensor")
            args = list(args)
            at = 0 if bare == "bucketize" else 1
            among = args[1 - at]
            if among.is_cuda and type(args[at]) in NUMBERS:
                with torch._C.DisableTorchFunction():
                    args[at] = torch.full((), args[at], dtype=among.dtype, device=among.device)
                return by_tensor._handle.redispatch_boxed(keyset, *args, **kwargs)
            return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
        return kernel

    def forgetting(self, base, overload, bare):
        """What is updated in place: small tensors among it are not known afterwards. Counters of steps are: an optimizer divides by what follows from them."""
        after, op, writes, names, tensors = self.after, None, (), (), ()
        most = FEW if base.startswith("_") else MOST
        counts = base == "_foreach_add_" and overload == "Scalar"

        @self.shell
        def counted(name, targets, number):
            return [(t, *self.twin(t)) for t in targets if t.numel() == 1 and self.on_card(t)]

        @self.shell
        def count_on(name, before, number):
            for t, value, state in before:
                if state:
                    self.keep(t, value + number, state)

        def kernel(keyset, *args, **kwargs):
            nonlocal op, writes, names, tensors
            if op is None:
                op = self.overload(base, overload)
                arguments = op._schema.arguments
                writes = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
                names = [arguments[i].name for i in writes]
                tensors = [i for i, a in enumerate(arguments) if str(a.type) == "Tensor"]
            run = op._handle.redispatch_boxed
            for i in tensors:
                if i < len(args) and type(args[i]) in NUMBERS:
                    run = self.with_number(run)
                    break
            before = counted(base, *args) if counts and len(args) == 2 and not getattr(_inside, "now", False) else None
            out = run(keyset & after, *args, **kwargs)
            if not getattr(_inside, "now", False):
                for several in self.targets(args, kwargs, writes, names):
                    for t in several if isinstance(several, (list, tuple)) else (several,):
                        if t.numel() <= most and self.on_card(t):
                            self.drop(t)
                if before:
                    count_on(base, before, args[1])
            return out
        return kernel

    def scalar(self, base, overload, bare):
        after, op = self.after, None

        def kernel(keyset, x):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if x.is_cuda and not getattr(_inside, "now", False) and not getattr(_inside, "told", False):
                with self.unknown_as(self.read(x)):
                    return op._handle.redispatch_boxed(keyset & after, x)
            return op._handle.redispatch_boxed(keyset & after, x)
        return kernel

    # ---- reads of unknown values

    def read(self, t):
        """The bytes of the number that stands for what is unknown of `t`; none: zeros."""
        if self.later and self.on_card(t):
            self.settle(t)
        number = PLAIN
        if self.on_card(t) and t.numel() <= MOST and (t.numel() == 1 or not t.dtype.is_floating_point):
            n = self.span(t)
            state = library.known(t.data_ptr(), n * t.element_size(), self.scratch(n * t.element_size())) if n else 1
            if state != 1:
                number = self.count(t)
            if state == 2 and not t.dtype.is_floating_point and t.dtype is not self.torch.bool:
                self.say_routed()
        if not t.dtype.is_floating_point and not t.dtype.is_complex:
            return b""
        key = t.dtype, number
        if key not in self.as_bytes:
            self.as_bytes[key] = bytes_of(number, str(t.dtype)[6:])
        return self.as_bytes[key]

    @contextlib.contextmanager
    def unknown_as(self, element):
        if not element or library.unknown is None:
            yield
            return
        library.unknown(element, len(element))
        try:
            yield
        finally:
            library.unknown(None, 0)

    def scratch(self, bytes):
        held = getattr(_inside, "scratch", None)
        if held is None or len(held) < bytes:
            held = _inside.scratch = ctypes.create_string_buffer(bytes)
        return held

    def count(self, t):
        """A read of an unknown value, by the line that asked. One line that asks too often in one loop waits for a change that never comes."""
        frame = own_frame(sys._getframe())
        number, key, seen = self.seen(frame, self.reads)
        if seen is None:
            return number
        if seen[0] & (seen[0] - 1) == 0:
            library.mark("value", f"{key[0]}:{key[1]} {str(t.dtype)[6:]}", seen[0])
        if seen[2] == 1:
            self.waiting[key] = time.monotonic(), self.compares, library.work() if library.work else None
        elif seen[2] >= FEW_READS or seen[2] & (seen[2] - 1) == 0 and seen[2] >= 16:
            self.look_at_loop(t, frame, key, seen[2])
        return number

    def look_at_loop(self, t, frame, key, times):
        where = loop_frame(frame)
        kind = loops.kind_of(where.f_code.co_filename, where.f_lineno) if where else None
        line = f"{where.f_code.co_filename}:{where.f_lineno}" if where else f"{key[0]}:{key[1]}"
        if times & (times - 1) == 0:
            library.mark("loop", line, times)
        most = {loops.ENDLESS: ENDLESS, loops.FOR: ENDING}.get(kind, LOOP)
        if times < most and kind in (loops.ENDLESS, loops.WHILE) and times >= FEW_READS and not t.dtype.is_floating_point and key in self.waiting:
            began, compares, work = self.waiting[key]
            same = work is not None and library.work() == work  # nothing that could change it
            if compares == self.compares and (same or kind == loops.ENDLESS) and time.monotonic() > began + LONG_S:
                most = times
        if times >= most:
            from . import steps
            steps.end(f"{line} waits for a value of the card to change. A dry run does not know it; it was read {times} times", 1)

    def float_at(self, frame, lines):
        self.compares += 1
        return self.seen(own_frame(frame), lines)[0]

    @staticmethod
    def seen(frame, lines):
        """A use of an unknown value in this frame: the number that stands for a float, the line, and its counts in `lines`."""
        if frame is None:
            return PLAIN, None, None
        key = frame.f_code.co_filename, frame.f_lineno
        counts = lines.setdefault(key, [0, 0, 0])
        counts[0] += 1
        call = id(loop_frame(frame) or frame)
        if counts[1] != call:
            counts[1:] = call, 0
        counts[2] += 1
        late = counts[2] % (PATIENCE + 200) - PATIENCE
        return PLAIN if late < 0 else FALLEN if late < 100 else RISEN, key, counts

    def say_routed(self):
        """Once: the line that reads a number which follows from a guess of which experts tokens go to."""
        if self.rules.routed and not self.said_routed:
            frame = own_frame(sys._getframe(), anywhere=True)
            if frame is not None:
                self.said_routed = True
                library.mark("routed", f"{frame.f_code.co_filename}:{frame.f_lineno}")

    def new_step(self):
        for lines in self.reads, self.compared:
            for counts in lines.values():
                counts[2] = 0


def bytes_of(number, dtype):
    """A number as a card keeps it; none for a type that is not known here."""
    if dtype in ("complex32", "complex64", "complex128"):
        return 2 * bytes_of(number, {"complex32": "float16", "complex64": "float32", "complex128": "float64"}[dtype])
    if dtype == "bfloat16":
        one = struct.pack("=f", number)
        return one[2:] if sys.byteorder == "little" else one[:2]
    if dtype.startswith("float8"):  # 0.75: not each of them has the others
        return {"float8_e4m3fn": b"\x34", "float8_e5m2": b"\x3a", "float8_e4m3fnuz": b"\x3c", "float8_e5m2fnuz": b"\x3e"}.get(dtype, b"")
    letter = {"float16": "e", "float32": "f", "float64": "d"}.get(dtype)
    return struct.pack("=" + letter, max(number, 1e-7) if letter == "e" else number) if letter else b""


class Unknown(Exception):
    pass


def loop_frame(frame):
    """The frame, from this one outwards in the program's own files, that is in a loop now; None: none is."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_own(file) and loops.kind_of(file, frame.f_lineno):
            return frame
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=None)
def is_own(file):
    return not (file.startswith("<") or "headroom_dry" in file or "site-packages" in file or "dist-packages" in file or "/lib/python3" in file)


def own_frame(frame, anywhere=False):
    """The innermost frame that is the program's own, not of an installed package; else, or `anywhere`, the innermost outside PyTorch."""
    outside = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and "headroom_dry" not in file:
            if is_own(file):
                return outside if anywhere and outside is not None else frame
            if outside is None and "/torch/" not in file:
                outside = frame
        frame = frame.f_back
    return outside
