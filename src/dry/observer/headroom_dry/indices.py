"""Rows that a program looks up by known numbers, and labels of a loss: where one is outside, a card ends the program, with a word of its own kernel."""
import sys

from . import library
from .again import inside
from .frames import own_frame
from .operations import CLEARED, MOST


class Indices:
    def __init__(self):
        self.outside = set()  # lines that were told

    def looking_up(self, base, overload, bare):
        """embedding, alone or summed, and the loss that takes a label of each row or pixel."""
        after, op = self.after, None
        of_labels, of_bags = base.startswith("nll_loss"), base.startswith("_embedding_bag")
        cleared = self.clearing(base, overload, bare) if base in CLEARED else None

        @self.shell
        def look(name, args, kwargs):
            table, indices = args[0], args[1]
            if not self.on_card(indices) or not 0 < indices.numel() <= MOST:
                return
            held, state = self.twin(indices)
            if state != 1:
                return
            rows = table.shape[1 if of_labels and table.dim() > 1 else 0]
            out = held[(held < 0) | (held >= rows)]
            if of_labels:
                out = out[out != args[4]]
            if out.numel():
                index = int(out.max() if of_bags else out[0])  # the kernel of bags asserts that rows are not too large, and no more
                does = "adds what lies before the table, or ends the program" if of_bags and index < 0 else "ends the program there (device-side assert)"
                self.tell(index, f"a label of {rows} kinds" if of_labels else f"a row of {rows}", does)

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if self.undrawn:
                self.fulfil(args)
            if args[0].is_cuda and not getattr(inside, "now", False):
                look(base, args, kwargs)
            return cleared(keyset, *args, **kwargs) if cleared else op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
        return kernel

    def tell(self, index, what, does):
        frame = own_frame(sys._getframe(), anywhere=True)
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "a line that is not known"
        if line not in self.outside:
            self.outside.add(line)
            unless = ", unless it follows from a value of the card that the program read before" if self.reads else ""
            library.mark("note", f"{line} takes {index} as {what}: a card {does}{unless}")
