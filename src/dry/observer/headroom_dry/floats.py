"""Floating tensors of more than FEW elements: which of them may be known, at a price that a step of a model does not feel.

They are known where everything they are made of is: they were filled, counted, converted or copied from the host. Parameters, activations and random
numbers are not. An operation is looked at only where each such input lies in storage that held known ones, which is quickly asked."""
import os
import sys

from .operations import COPIED, FEW, FLOATS, FLOATS_LATER

HERE = os.path.dirname(__file__)


class Floats:
    def __init__(self):
        self.floats = set()  # where storage begins that holds known ones, or did

    def begins(self, t):
        """None of a tensor without memory of its own (a fake one, a sparse one): PyTorch warns who asks it for an address, or refuses."""
        plain = type(t) in self.plain and t.layout is self.torch.strided
        return t.data_ptr() - t.storage_offset() * t.element_size() if plain else None

    def is_hopeful(self, t):
        return t.numel() <= FLOATS_LATER and not t.requires_grad and self.begins(t) in self.floats

    def all_hopeful(self, args):
        """Whether each large floating tensor of the card among them may be known."""
        tensor = self.torch.Tensor
        for x in args:
            if isinstance(x, tensor):
                if x.is_cuda and x.dtype.is_floating_point and x.numel() > FEW and not self.is_hopeful(x):
                    return False
            elif type(x) in (list, tuple) and not self.all_hopeful(x):
                return False
        return True

    def hope(self, t):
        """`t` is known, or is a copy of the host's or of what may be known."""
        if t.dtype.is_floating_point and t.numel() <= FLOATS and not t.requires_grad and self.on_card(t):
            self.floats.add(self.begins(t))

    def is_out_of_sight(self, t):
        """So large that a write to it changes nothing that is known."""
        return t.dtype.is_floating_point and t.numel() > COPIED and (t.numel() > FLOATS_LATER or self.begins(t) not in self.floats)

    def give_up(self, t):
        if t.storage_offset() == 0:
            self.floats.discard(t.data_ptr())

    def by_engine(self):
        """Whether autograd itself calls, not Python: its derivatives begin with zeros and go on with kernels that nothing here sees."""
        if self.torch._C._current_graph_task_id() == -1:
            return False
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(HERE):
            frame = frame.f_back
        return frame is None or frame.f_code.co_name == "_engine_run_backward"
