"""Unknown masks and their copies: as whole numbers (`mask.long()`) or as masks again. As many places are taken to be true of a copy as of the mask."""
import ctypes

from . import library

FIRST = ctypes.create_string_buffer(b"\x6d", 1)  # of a copy in whole numbers one byte is known: it goes with the block, or with what is written over it
MANY = 256


class Masks:
    def __init__(self):
        self.of_masks = {}  # where such copies begin: how many elements they have

    def mask_is_copied(self, to, source):
        torch = self.torch
        if source.dtype is not torch.bool and not self.is_of_a_mask(source) or to.dtype.is_floating_point or to.dtype.is_complex:
            return
        if to.numel() != source.numel() or self.span(to) != to.numel():
            return
        self.rules.copied(to, source)
        if to.dtype is not torch.bool and to.element_size() > 1:
            if len(self.of_masks) >= MANY:
                self.of_masks = {at: n for at, n in self.of_masks.items() if self.is_first(at)}
            library.know(to.data_ptr(), 1, FIRST)
            self.of_masks[to.data_ptr()] = to.numel()

    def is_first(self, at):
        held = self.scratch(1)
        return library.known(at, 1, held) == 1 and held[0] == FIRST[0]

    def is_of_a_mask(self, x):
        """Whether it is a mask, or one in whole numbers."""
        if x.dtype is self.torch.bool:
            return True
        return bool(self.of_masks) and self.of_masks.get(x.data_ptr()) == x.numel() and self.is_first(x.data_ptr())
