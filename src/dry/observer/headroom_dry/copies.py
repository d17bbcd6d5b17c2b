"""copy_: plain copies are the library's; what converts, or has gaps, is done here. Reads of the card by a copy are counted by line."""
import functools

from .again import inside
from .later import Lazy
from .operations import FEW, FLOATS, FLOATS_LATER, KNOWN, MOST, NUMBERS


class Copies:
    """What the card holds after a copy, by what was known of its source. Methods get the copy as a call without arguments."""

    def __init__(self, values, base, overload):
        self.values, self.base, self.overload, self.op = values, base, overload, None
        shell = values.shell
        self.convert, self.convert_later, self.come = shell(self._convert), shell(self._convert_later), shell(self._come)
        self.follow, self.keep = shell(self._follow), shell(self._keep)

    def begin(self):
        self.op = self.values.overload(self.base, self.overload)

    def _convert(self, name, to, source):
        values = self.values
        if not values.wanted(to) or not values.on_card(to) or to.requires_grad and to.numel() > FEW:
            return None
        if type(source) in NUMBERS:
            return values.torch.tensor(source, device="cpu"), 1
        if source.is_cuda and source.numel() <= MOST and values.on_card(source) and (to.numel() <= FEW or values.all_hopeful((source,))):
            return values.twin(source)
        return None

    def _convert_later(self, name, to, source):
        values = self.values
        if values.on_card(to) and values.on_card(source) and values.span(to) == to.numel() and not to.requires_grad and values.all_hopeful((source,)):
            return values.conversion(to, source)
        return None

    def _come(self, name, to, source):
        return None if source.is_cuda else self.values.whole_numbers(to, source)

    def _follow(self, name, to, source):
        self.values.mask_is_copied(to, source)
        self.values.bounds_are_copied(to, source)

    def _keep(self, name, to, made):
        self.values.drop(to)
        if type(made) is Lazy:
            self.values.add_later(made, to)
        elif made and made[1]:
            self.values.keep(to, made[0].expand(to.shape), made[1])

    def kept(self, copy, to, made):
        out = copy()
        if made:
            self.keep(self.base, to, made)
        return out

    def of_number(self, copy, to, number):
        made = self.convert(self.base, to, number) if to.is_cuda else None
        return self.kept(self.values.with_number(copy), to, made)

    def converted_later(self, to, source):
        of_floats = to.dtype.is_floating_point or source.dtype.is_floating_point
        return self.convert_later(self.base, to, source) if of_floats and FLOATS < to.numel() <= FLOATS_LATER else None

    def settle(self, to, source, hopeful):
        """What is computed later, of either side, is computed now or given up."""
        values = self.values
        if source.is_cuda and not hopeful and to.numel() > FEW and values.on_card(to):
            values.let_go(to)
        for t in (to, source):
            if values.on_card(t):
                values.settle(t)

    def to_host(self, copy, source):
        if getattr(inside, "told", False):
            return copy()
        with self.values.unknown_as(self.values.read(source)):
            return copy()

    def to_card(self, copy, to, source):
        """From the host, or into what is out of sight."""
        values = self.values
        of_a_mask = source.is_cuda and (values.bounds or values.may_follow((source,)))
        values.hope(to)
        made = self.come(self.base, to, source) if to.numel() * to.element_size() > KNOWN else None
        out = self.kept(copy, to, made)
        if of_a_mask:
            self.follow(self.base, to, source)
        return out

    def plain(self, copy, to, source):
        values = self.values
        if values.is_hopeful(source):
            values.hope(to)
        out = copy()
        if values.of_masks or values.bounds or values.rules.nearly and to.dtype is values.torch.bool:
            self.follow(self.base, to, source)
        return out

    def converting(self, copy, to, source, hopeful):
        values = self.values
        made = self.convert(self.base, to, source) if hopeful or to.numel() <= FEW else None
        out = copy()
        if values.on_card(to):
            self.keep(self.base, to, made)
            if not (made and made[1]) and values.on_card(source):
                self.follow(self.base, to, source)
        return out


def is_plain(to, source):
    return to.dtype == source.dtype and to.is_contiguous() and source.is_contiguous() and to.shape == source.shape


def kernel_of(values, base, overload):
    """What is called in place of copy_."""
    o, after = Copies(values, base, overload), values.after

    def kernel(keyset, *args, **kwargs):
        if o.op is None:
            o.begin()
        to, source = args[0], args[1]
        copy = functools.partial(o.op._handle.redispatch_boxed, keyset & after, *args, **kwargs)
        if values.of_masks and to.is_cuda:
            values.mask_is_written(to)
        if type(source) in NUMBERS:
            return o.of_number(copy, to, source)
        if getattr(inside, "now", False):
            return copy()
        if values.while_undrawn is not None:
            if not to.is_cuda and values.put_off_or_fulfil(to, source):
                return to
            values.look_after()
        if not (to.is_cuda or source.is_cuda):
            return copy()
        hopeful = to.is_cuda and source.is_cuda and values.all_hopeful((source,))
        later = o.converted_later(to, source) if hopeful else None
        if later:
            return o.kept(copy, to, later)
        if values.later:
            o.settle(to, source, hopeful)
        if not to.is_cuda:
            return o.to_host(copy, source)
        if not source.is_cuda or values.is_out_of_sight(to):
            return o.to_card(copy, to, source)
        return o.plain(copy, to, source) if is_plain(to, source) else o.converting(copy, to, source, hopeful)

    return kernel
