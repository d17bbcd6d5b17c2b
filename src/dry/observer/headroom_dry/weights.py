"""Random weights of a model that is made on the CPU are drawn when something reads them there. Most are never read: they go to the card, where nothing can.
So a model of 8 billion parameters takes seconds and no memory, and what is drawn after it is what the program would draw.

An undrawn storage has the calls that will fill it, and so have copies of it on the CPU, converted or not. Each operation that the observer sees fills what it
reads first; products and the like are seen while something is undrawn, and so are files of PyTorch and safetensors, and what torch.compile takes. What is
read in no such way (by a pointer that the program took, say) is zeros, like copies of more than 1 MiB from the card."""
import functools
import os
import sys
import threading

from . import library
from .again import inside
from .operations import KNOWN, NUMBERS
from .places import untraced

HERE, INITIALISERS = os.path.dirname(__file__), os.path.join("torch", "nn", "init.py")
WORDS = {1: 1, 2: 1, 4: 1, 8: 2}  # that the generator gives for a number of so many bytes
CHANGING = frozenset("add sub mul div neg abs sqrt exp log clamp clamp_min clamp_max tanh sigmoid erfinv fill zero".split())
# What reads a weight though it has no kernel of the CPU's own, and what has one and reads none.
READING_WEIGHTS = frozenset("convolution _convolution _fused_rms_norm ldexp _nested_tensor_from_tensor_list".split())
READING_NONE = frozenset("set_ is_set_to".split())
SPACES = "aten", "c10d"  # PyTorch's operations, and collectives of the CPU
OUT_OF_PYTORCH = "numpy", "tolist", "__reduce_ex__"  # the last is how a tensor is saved

def begin(after_import, values):
    """What reads weights by their address."""
    after_import("safetensors.torch", lambda module: [_drawn_first(module, name, values) for name in ("_tobytes", "_to_ndarray")])
    after_import("torch._subclasses.fake_tensor", lambda module: _drawn_first(module.FakeTensorMode, "from_tensor", values))  # which torch.compile makes


def _drawn_first(owner, name, values):
    read = getattr(owner, name, None)
    if read is None:  # another version's
        return

    @functools.wraps(read)
    def drawn_first(*args, **kwargs):
        if values.undrawn:
            values.fulfil((*args, *kwargs.values()))
        return read(*args, **kwargs)
    setattr(owner, name, drawn_first)


class Undrawn:
    """What will fill a storage: calls, in the program's order; None while they do and when they did."""

    def __init__(self, at, storage, dtype, calls):
        self.at, self.storage, self.dtype, self.calls = at, storage, dtype, calls


def takes_tensors(arguments):
    """Whether an operation takes tensors and gives new ones, or writes: what gives a view reads nothing."""
    views = any(a.alias_info is not None and not a.alias_info.is_write for a in arguments)
    return not views and any("Tensor" in str(a.type) for a in arguments)


def view_of(t):
    return tuple(t.shape), tuple(t.stride()), t.storage_offset()


class Weights:
    def __init__(self, torch):
        from torch.multiprocessing.reductions import StorageWeakRef
        self.weak = StorageWeakRef
        self.parameters = {}  # where the storage of a module's large parameter begins -> a weak reference to it
        self.undrawn = {}  # where a storage begins -> Undrawn
        self.moves_on = {}  # (draw, dtype) -> whether this PyTorch's generator gives as many words for such numbers
        self.while_undrawn = None  # libraries of kernels for what else reads weights
        self.running = 0  # of these kernels
        self.new_lock()
        os.register_at_fork(after_in_child=self.new_lock)
        self.moved = 0  # copies since expired storages were last looked for
        self.quiet, self.taken_away = 0, 0  # copies while nothing was undrawn; how often the kernels were taken away
        self.draw_later, self.copy_later, self.fill = self.shell(self._draw_later), self.shell(self._copy_later), self.shell(self._fill)
        self.try_change = self.shell(self._try_change)
        if library.skip_draws is not None:
            torch.nn.modules.module.register_module_parameter_registration_hook(untraced(torch, self.note_parameter))

    def new_lock(self):
        """Of what storages wait for; held while one is filled."""
        self.lock = threading.RLock()

    def note_parameter(self, module, name, parameter):
        if parameter is not None and self.may_be_undrawn(parameter):
            storage = parameter.untyped_storage()
            self.parameters[storage.data_ptr()] = self.weak(storage)

    def may_be_undrawn(self, t):
        return (type(t) in self.plain and t.device.type == "cpu" and t.layout is self.torch.strided and t.dtype.is_floating_point
                and t.numel() * t.element_size() > KNOWN)

    def fills(self, t, storage):
        """Whether `t` is all of a storage of PyTorch's own that no other process sees."""
        return (storage.resizable() or t.is_pinned()) and self.span(t) == t.numel() and t.numel() * t.element_size() == storage.nbytes() and not storage.is_shared()

    def put_off(self, storage, dtype, calls):
        library.untouched(storage.data_ptr(), storage.nbytes())
        self.undrawn[storage.data_ptr()] = Undrawn(storage.data_ptr(), self.weak(storage), dtype, calls)
        if self.while_undrawn is None:
            self.look_at_products()

    def undrawn_of(self, t):
        if type(t) in self.plain:
            return self.undrawn_in(t)
        if type(t).__torch_dispatch__ is not self.torch._C._disabled_torch_dispatch_impl:
            return None  # a class of the program's own that sees operations itself: it unwraps what it holds
        with self.torch._C.DisableTorchFunction():
            return self.undrawn_in(t)

    def undrawn_in(self, t):
        if t.is_cuda or t.device.type != "cpu":
            return None
        if t.layout is not self.torch.strided:
            return self.undrawn_in(t._values()) if t.layout is self.torch.sparse_coo else None
        held = self.undrawn.get(t.untyped_storage().data_ptr())
        return held if held is not None and not held.storage.expired() else None

    # ---- what is put off

    def drawing(self, base, overload, bare):
        """normal_ and uniform_."""
        op, otherwise = None, (self.computing if bare == "uniform" else self.forgetting)(base, overload, bare)

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            t = args[0]
            if not t.is_cuda and library.skip_draws is not None and self.may_be_undrawn(t) and self.draw_later(base, op, bare, t, args[1:], kwargs):
                return t
            return otherwise(keyset, *args, **kwargs)
        return kernel

    def _draw_later(self, name, op, bare, t, args, kwargs):
        storage = t.untyped_storage()
        if not self.fills(t, storage) or not t.is_contiguous() or not self.is_of_a_model(storage) or not self.is_counted(op, bare, t.dtype, args):
            return False
        generator = kwargs.get("generator")
        generator = self.torch.default_generator if generator is None else generator
        few = self.torch.empty(1, dtype=t.dtype, device="cpu")
        self.Draw(op, view_of(few), args, None).fill(self, few, self.torch.Generator("cpu"))  # where it fails, the program's own fails
        before = generator.get_state()
        moved = self.moved_on(before, bare, t)
        if moved is None:
            return False
        generator.set_state(moved)
        self.put_off(storage, t.dtype, [self.Draw(op, view_of(t), args, before)])
        return True

    def is_of_a_model(self, storage):
        """A module's parameter, or what one of PyTorch's initialisers fills."""
        known = self.parameters.get(storage.data_ptr())
        if known is not None and not known.expired():
            return True
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(HERE):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.endswith(INITIALISERS) and frame.f_code.co_name != "orthogonal_"

    @staticmethod
    def moved_on(state, bare, t):
        n = t.numel()
        if bare == "normal" and n % 16:
            n += 16  # the last 16 are drawn again
        moved = state.clone()
        return moved if library.skip_draws(moved.data_ptr(), moved.numel(), n * WORDS[t.element_size()]) else None

    def is_counted(self, op, bare, dtype, args):
        torch = self.torch
        if (bare, dtype) not in self.moves_on:
            right = True
            for n in 4096, 4101:
                few, generator = torch.empty(n, dtype=dtype, device="cpu"), torch.Generator("cpu")
                moved = self.moved_on(generator.get_state(), bare, few)
                self.Draw(op, view_of(few), args, generator.get_state()).fill(self, few, generator)
                right = right and moved is not None and torch.equal(moved, generator.get_state())
            self.moves_on[bare, dtype] = right
        return self.moves_on[bare, dtype]

    def change_later(self, op, bare, t, args, kwargs):
        """An operation in place, with numbers alone."""
        held = self.undrawn_of(t)
        tensor = self.torch.Tensor
        if held is None or bare not in CHANGING or t.dtype is not held.dtype or any(isinstance(x, tensor) for x in (*args, *kwargs.values())):
            return False
        if not self.try_change(bare, op, t.dtype, args, kwargs):
            return False  # the program's own fails, too
        with self.lock:
            if held.calls is None:
                return False
            held.calls.append(self.Change(op, view_of(t), args, kwargs))
        return True

    def _try_change(self, name, op, dtype, args, kwargs):
        few = self.torch.empty(1, dtype=dtype, device="cpu")
        self.Change(op, view_of(few), args, kwargs).fill(self, few)
        return True

    def _copy_later(self, name, to, source):
        held = self.undrawn_of(source)
        if held is None or not self.may_be_undrawn(to) or source.dtype is not held.dtype or to.shape != source.shape:
            return False
        storage, of = to.untyped_storage(), source.untyped_storage()
        if not self.fills(to, storage) or storage.data_ptr() == of.data_ptr():
            return False
        with self.lock:
            if held.calls is None:
                return False
            self.put_off(storage, to.dtype, [self.Copy(view_of(to), of.nbytes() // source.element_size(), view_of(source), held.dtype, tuple(held.calls))])
        return True

    # ---- what fills it

    class Draw:
        def __init__(self, op, view, args, state):
            self.op, self.view, self.args, self.state = op, view, args, state

        def fill(self, weights, flat, generator=None):
            if generator is None:
                generator = weights.torch.Generator("cpu")
                generator.set_state(self.state)
            self.op._handle.redispatch_boxed(weights.cpu, weights.torch.as_strided(flat, *self.view), *self.args, generator=generator)

    class Change:
        def __init__(self, op, view, args, kwargs):
            self.op, self.view, self.args, self.kwargs = op, view, args, kwargs

        def fill(self, weights, flat):
            weights.with_number(self.op._handle.redispatch_boxed)(weights.cpu, weights.torch.as_strided(flat, *self.view), *self.args, **self.kwargs)

    class Copy:
        def __init__(self, view, numel, source_view, dtype, calls):
            self.view, self.numel, self.source_view, self.dtype, self.calls = view, numel, source_view, dtype, calls

        def fill(self, weights, flat):
            torch = weights.torch
            source = torch.empty(self.numel, dtype=self.dtype, device="cpu")
            for call in self.calls:
                call.fill(weights, source)
            torch.as_strided(flat, *self.view).copy_(torch.as_strided(source, *self.source_view))

    def _fill(self, name, held, calls):
        storage = self.torch.UntypedStorage._new_with_weak_ptr(held.storage.cdata)
        if storage is not None:
            with self.torch._C._DisableTorchDispatch():  # torch.compile asks while it has a mode of its own
                flat = self.torch.empty(0, dtype=held.dtype, device="cpu").set_(storage)
                for call in calls:
                    call.fill(self, flat)

    def fulfil(self, arguments):
        """The tensors among the arguments are drawn."""
        for x in arguments:
            if isinstance(x, self.torch.Tensor):
                held = self.undrawn_of(x)
                if held is not None:
                    self.fulfil_once(held)
            elif type(x) in (list, tuple):
                self.fulfil(x)

    def fulfil_once(self, held):
        """Other threads that read it wait."""
        with self.lock:
            if held.calls is not None:  # else another thread filled it, or this one does
                calls, held.calls = held.calls, None
                self.fill("weights", held, calls)
                self.forget(held)

    def forget(self, held):
        if self.undrawn.get(held.at) is held:
            del self.undrawn[held.at]

    def put_off_or_fulfil(self, to, source):
        """Before a copy to the CPU. True: it is put off."""
        if not source.is_cuda and self.copy_later("copy_", to, source):
            return True
        held = self.undrawn_of(to)
        if held is not None and self.fills(to, to.untyped_storage()) and self.undrawn_of(source) is not held:
            with self.lock:
                self.forget(held)
        self.fulfil((to, source))
        return False

    # ---- while something is undrawn

    def look_at_products(self):
        has, schema = self.torch._C._dispatch_has_kernel_for_dispatch_key, self.torch._C._get_schema
        self.while_undrawn = {space: self.torch.library.Library(space, "IMPL") for space in SPACES}
        for name in self.torch._C._dispatch_get_all_op_names():
            space, _, own = name.partition("::")
            base, _, overload = own.partition(".")
            bare = base[:-1] if base.endswith("_") and not base.endswith("__") else base
            reads = bare in READING_WEIGHTS or has(name, "CPU") and base not in READING_NONE and not base.endswith("_backward")
            if space not in SPACES or not reads or has(name, "BackendSelect"):
                continue
            try:
                if space != "aten" or takes_tensors(schema("aten::" + base, overload).arguments):
                    self.while_undrawn[space].impl(own, self.weighing(base, overload or "default", bare, space), "BackendSelect", with_keyset=True)
            except Exception as e:
                if self.talk:
                    print(f"weights: {name}: {e}", file=sys.stderr)
        self.methods = {name: vars(self.torch.Tensor).get(name) for name in OUT_OF_PYTORCH}
        for name in OUT_OF_PYTORCH:
            setattr(self.torch.Tensor, name, self.drawn_first(getattr(self.torch.Tensor, name)))

    def drawn_first(self, method):
        @functools.wraps(method)
        def read(t, *args, **kwargs):
            self.fulfil((t,))
            return method(t, *args, **kwargs)
        return read

    def weighing(self, base, overload, bare, space="aten"):
        after, op = self.after, None
        in_place = base != bare and space == "aten"

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = getattr(getattr(getattr(self.torch.ops, space), base), overload)
            if self.undrawn and not getattr(inside, "now", False):
                if in_place and self.change_later(op, bare, args[0], args[1:], kwargs):
                    return args[0]
                self.fulfil((*args, *kwargs.values()))
            run = op._handle.redispatch_boxed
            if any(type(x) in NUMBERS and str(a.type) == "Tensor" for x, a in zip(args, op._schema.arguments)):
                run = self.with_number(run)
            self.running += 1
            try:
                return run(keyset & after, *args, **kwargs)
            finally:
                self.running -= 1
        return kernel

    def look_after(self):
        """At copies to the card, after which weights are let go. The kernels are taken away where none of them runs."""
        self.moved += 1
        if self.moved <= len(self.undrawn) // 4:
            return
        self.moved = 0
        for of in (self.undrawn, self.parameters):
            for at in [at for at, x in of.items() if (x.storage if type(x) is Undrawn else x).expired()]:
                del of[at]
        if not self.undrawn and not self.running and not self.may_be_within_an_operation():
            self.quiet += 1
            if self.quiet > self.taken_away:  # a program that moves one layer after another would have them registered for each
                self.quiet, self.taken_away = 0, self.taken_away + 1
                self.no_longer_look_at_products()

    def may_be_within_an_operation(self):
        """Hooks of saved tensors are called by an operation's own gradients, which then ask for the kernels that there were when it began."""
        hooks = self.torch._C._autograd
        if hooks._saved_tensors_hooks_get_disabled_error_message() is not None:
            return False  # the program does not allow hooks, so there are none
        try:
            hooks._saved_tensors_hooks_disable("asked by headroom")  # an error where there are hooks; before PyTorch 2.8 nothing else tells
        except RuntimeError:
            return True
        finally:
            hooks._saved_tensors_hooks_enable()
        return False

    def no_longer_look_at_products(self):
        for kernels in self.while_undrawn.values():
            kernels._destroy()
        for name, own in self.methods.items():
            if own is None:
                delattr(self.torch.Tensor, name)  # PyTorch's own is its base's
            else:
                setattr(self.torch.Tensor, name, own)
        self.while_undrawn = None
