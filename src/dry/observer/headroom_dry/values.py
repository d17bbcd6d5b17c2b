"""Values: small integer, bool and scalar operations on the card are computed again on the CPU, and the library keeps the results by address.

Each operation of the tables (operations.py) gets a kernel (kernels.py) at the dispatch key BackendSelect: below autograd, above the card, in every
thread. The kernel calls what was there before, so the program's memory does not change. (A TorchDispatchMode would change it: `isTensorSubclassLike`
becomes true, and autograd then adds gradients out of place. docs/decisions/dry-values.md.) Tensors of other keys (fake, DTensor, vmap) are handled
above this key.

An input is known, guessed, a choice (choices.py), or unknown. A result of a guess is a guess, of a choice a choice. An unknown input makes the result unknown, or, where a program could
not go on, a guess by a rule (rules.py). An unknown integer or bool that the program reads is 0, 1 where it makes a size of it, an unknown float PLAIN
(reads.py)."""
import collections
import sys

from .again import Again
from .bounds import Bounds
from .choices import Choices
from .falls import Falls
from .floats import Floats
from .indices import Indices
from .kernels import Kernels
from .later import Later
from .masks import Masks
from .operations import CLEARED, ELEMENTWISE, LEFT, LOOKED_UP, OTHERS, PRODUCTS, READING, SEARCHES, WRITTEN
from .reads import Reads
from .twins import Twins
from .weights import Weights


class Values(Twins, Again, Bounds, Choices, Falls, Floats, Later, Masks, Kernels, Indices, Reads, Weights):
    def __init__(self, torch):
        Twins.__init__(self, torch)
        Again.__init__(self, torch)
        Bounds.__init__(self)
        Choices.__init__(self)
        Falls.__init__(self)
        Floats.__init__(self)
        Later.__init__(self)
        Masks.__init__(self)
        Kernels.__init__(self, torch)
        Indices.__init__(self)
        Reads.__init__(self)
        Weights.__init__(self, torch)
        self.library = torch.library.Library("aten", "IMPL")
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
                if base in ("normal_", "uniform_") and overload == "" and not has(name, "BackendSelect"):
                    kind = self.drawing
                elif bare in wanted and (has(name, "CUDA") or base in ("copy_", "masked_fill_", "zero_")) and not has(name, "BackendSelect"):
                    kind = self.searching if (bare, overload) in SEARCHES else self.reading if bare in READING else self.copying if base == "copy_" else self.computing
                elif base.startswith("_foreach_") and base.endswith("_") or base.startswith("_fused_adam") or base == "_fused_sgd_" or base == "_fused_adagrad_":
                    if not has(name, "CUDA"):
                        continue
                    kind = self.forgetting
                elif base == "_amp_update_scale_":
                    kind = self.scaling
                elif name[6:] in LOOKED_UP and not has(name, "BackendSelect"):
                    kind = self.looking_up
                elif base == "_local_scalar_dense":
                    kind = self.scalar
                elif base == "_coalesce" and has(name, "SparseCUDA") and not has(name, "BackendSelect"):
                    kind = self.coalescing
                elif base in CLEARED and overload in ("", "vec") and has(name, "CUDA") and not has(name, "BackendSelect"):
                    kind = self.clearing
                elif (self.overwrites(base, overload) or name[6:] in WRITTEN) and has(name, "CUDA") and not has(name, "BackendSelect"):
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
