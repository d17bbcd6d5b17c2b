"""Calls over caches that were made before: they are kept by their forms, and whatever changes is seen."""

import itertools
import os
import subprocess
import sys
import unittest
import unittest.mock

import torch.overrides
import torch.utils._python_dispatch as dispatch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_cases import Base, reference, torch

import gpu_headroom.torch as ht
from gpu_headroom.torch import caches, direct, kept_calls
from gpu_headroom.torch.flash_attn import flash_attn_with_kvcache
from gpu_headroom.torch.flash_attn_3 import flash_attn_varlen_func as fa_varlen
from gpu_headroom.torch.flash_attn_3 import flash_attn_with_kvcache as third


def drawn(batch=2, heads=4, kv_heads=2, new=2, room=9, dim=16, seed=0, **made):
    g = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, new, dim), (batch, kv_heads, room, dim), (batch, kv_heads, room, dim)
    return [torch.randn(s, generator=g).to(**made) if made else torch.randn(s, generator=g) for s in shapes]


def wanted(q, k, v, lengths, **mask):
    """o in FP64, a sequence at a time."""
    mask = mask or {"is_causal": True}
    rows = [reference(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], align="bottom-right", **mask)[0] for b, n in enumerate(lengths)]
    return torch.cat(rows)


def numbers(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


class KeptCallsTest(Base):
    def setUp(self):
        caches._known.clear()
        direct.known.clear()

    def near(self, got, want, most=2e-5):
        self.assertLess(float((got.detach().double() - want).abs().max()), most)

    def twice(self, call):
        """The call is kept, and made again."""
        call()
        kept = len(caches._known)
        made = call()
        self.assertEqual(len(caches._known), kept)
        return made

    def test_the_numbers_of_each_call_are_read(self):
        q, k, v = drawn()
        lengths, pages = numbers(3, 9), numbers(1, 0, 2, 3).view(2, 2)
        for _ in range(3):
            self.near(ht.attention_with_cache(q, k, v, lengths), wanted(q, k, v, lengths.tolist()))
            lengths.copy_(torch.randint(2, 10, (2,)))
            k.normal_()
        for n in (4, 7, numbers(5)[0], numbers(8)[0]):
            self.near(ht.attention_with_cache(q, k, v, n), wanted(q, k, v, [int(n)] * 2))
        of_pages = [torch.randn(4, 2, 4, 16) for _ in range(2)]
        for _ in range(3):
            in_order = [t[pages.long()].transpose(1, 2).flatten(2, 3) for t in of_pages]
            self.near(ht.attention_with_cache(q, *of_pages, numbers(5, 8), pages), wanted(q, *in_order, [5, 8]))
            pages.copy_(torch.randperm(4, dtype=torch.int32).view(2, 2))

    def test_a_length_without_room_is_refused_after_a_call_that_had_it(self):
        q, k, v = drawn()
        cases = [
            (numbers(3, 9), numbers(3, 10), r"lengths\[1\] is 10, the cache has room for 9"), (4, 10, "lengths is 10"), (4, -1, "lengths is -1"),
            (numbers(3, 4), numbers(-1, 3), r"lengths\[0\] is -1"), (3, True, "lengths is a bool"), (3, 2.5, "lengths is a float"),
        ]  # fmt: skip
        for good, bad, words in cases:
            self.twice(lambda good=good: ht.attention_with_cache(q, k, v, good))
            with self.assertRaisesRegex((ValueError, TypeError), words):
                ht.attention_with_cache(q, k, v, bad)
        for lengths in (numbers(3, 9).float(), numbers(3), numbers(3, 4, 5)):
            with self.assertRaisesRegex(ValueError, "lengths is torch"):
                ht.attention_with_cache(q, k, v, lengths)

    def test_options_that_are_equal_and_of_another_type_are_looked_at(self):
        q, k, v = drawn()
        for lengths in (None, numbers(3, 9)):
            self.twice(lambda n=lengths: ht.attention_with_cache(q, k, v, n, window=1, softcap=0.0, scale=1.0))
            self.twice(lambda n=lengths: ht.attention_with_cache(q, k, v, n, window=(1, 0)))
            cases = [
                (TypeError, "window is True", {"window": True, "softcap": 0.0, "scale": 1.0}), (TypeError, "window", {"window": (True, 0)}),
                (ValueError, "softcap is False", {"softcap": False}), (TypeError, "is_causal is 1", {"is_causal": 1}),
                (TypeError, "return_lse is 0", {"return_lse": 0}), (TypeError, "tf32", {"tf32": 0}),
            ]  # fmt: skip
            for error, words, named in cases:
                with self.assertRaisesRegex(error, words):
                    ht.attention_with_cache(q, k, v, lengths, **named)
        width = numbers(2)[0]
        for _ in range(3):  # a number that can change
            self.near(ht.attention_with_cache(q, k, v, 9, window=width), wanted(q, k, v, [9, 9], window=int(width)))
            width += 1

    def test_attention_looks_at_types_too(self):
        q, k, v = drawn(kv_heads=4)
        ht.attention(q, k, v, enable_gqa=True, softcap=0.0, sink=torch.zeros(4))
        for error, words, named in ((TypeError, "enable_gqa is a int", {"enable_gqa": 1}), (ValueError, "softcap is False", {"softcap": False})):
            with self.assertRaisesRegex(error, words):
                ht.attention(q, k, v, sink=torch.zeros(4), **named)

    def test_strides_types_and_threads_are_seen(self):
        lengths = numbers(3, 9)
        for _ in range(2):
            q, k, v = drawn()
            self.near(ht.attention_with_cache(q, k, v, lengths), wanted(q, k, v, [3, 9]))
            other = k.transpose(1, 2).contiguous().transpose(1, 2)
            self.near(ht.attention_with_cache(q, other, v, lengths), wanted(q, k, v, [3, 9]))
            wide = torch.randn(2, 2, 9, 32)
            self.near(ht.attention_with_cache(q, wide[..., 16:], wide[..., ::2], lengths), wanted(q, wide[..., 16:], wide[..., ::2], [3, 9]))
            half = [t.bfloat16() for t in (q, k, v)]
            self.assertIs(ht.attention_with_cache(*half, lengths).dtype, torch.bfloat16)
            self.near(ht.attention_with_cache(q, k, v, lengths.long()), wanted(q, k, v, [3, 9]))
            with self.assertRaisesRegex(TypeError, "all have one dtype"):
                ht.attention_with_cache(q, k.half(), v, lengths)
            with self.assertRaisesRegex(ValueError, "k_cache is on meta, q is on cpu"):
                ht.attention_with_cache(q, k.to("meta"), v, lengths)
            signs = torch.complex(torch.zeros_like(k), -k).conj().imag  # torch's negative bit: memory holds the other sign
            self.assertTrue(signs.is_neg())
            self.near(ht.attention_with_cache(q, signs, v, lengths), wanted(q, k, v, [3, 9]))
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(before + 1)
            kept = len(caches._known)
            ht.attention_with_cache(q, k, v, lengths)
            self.assertGreater(len(caches._known), kept)
        finally:
            torch.set_num_threads(before)

    def test_gradients_modes_and_subclasses_are_seen(self):
        q, k, v = drawn()
        lengths = numbers(3, 9)
        call = lambda *t: ht.attention_with_cache(*t, lengths)  # noqa: E731
        with torch.inference_mode():  # what is made once must serve outside, too
            first = self.twice(lambda: call(q, k, v))
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        o = call(*leaves)
        self.assertTrue(torch.equal(o, first))
        grads = torch.autograd.grad(o.sum(), leaves)
        with torch.no_grad():
            self.assertFalse(call(*leaves).requires_grad)
        exact = [t.detach().double().requires_grad_() for t in leaves]
        for got, want in zip(grads, torch.autograd.grad(wanted(*exact, [3, 9]).sum(), exact)):
            self.near(got, want)
        seen = []

        class Listens(dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        with Listens():
            call(q, k, v)
        self.assertIn("headroom.attention_forward.default", seen)

        class Own(torch.Tensor):
            pass

        self.assertIs(type(call(q.as_subclass(Own), k, v)), Own)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertIs(call(q, k, v).dtype, torch.bfloat16)
        self.assertIs(call(q, k, v).dtype, torch.float32)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = call(*(mode.from_tensor(t) for t in (q, k, v)))
        self.assertEqual((type(fake).__name__, tuple(fake.shape)), ("FakeTensor", (2, 4, 2, 16)))
        mapped = torch.vmap(lambda q: call(q, k, v))(torch.stack([q, 2 * q]))
        self.near(mapped[1], wanted(2 * q, k, v, [3, 9]))
        graph = torch.fx.experimental.proxy_tensor.make_fx(call)(q, k, v)
        self.assertIn("headroom.attention_forward", graph.code)
        compiled = torch.compile(lambda q, k, v, n: ht.attention_with_cache(q, k, v, n), fullgraph=True, backend="aot_eager")
        for n in (lengths, numbers(9, 4)):
            self.near(compiled(q, k, v, n), wanted(q, k, v, n.tolist()))

    def test_deterministic_algorithms_are_heeded(self):
        q, k, v = (t.requires_grad_() for t in drawn())
        made = []
        try:
            for said in (False, True):
                torch.use_deterministic_algorithms(said)
                self.twice(lambda: made.append(ht.attention_with_cache(q, k, v, numbers(3, 9))))
        finally:
            torch.use_deterministic_algorithms(False)
        which = [bool(o.grad_fn.settled[2][8]) for o in made]
        self.assertEqual(which, [False, False, True, True])

    def test_sinks_and_slopes_of_each_call(self):
        q, k, v = drawn()
        lengths, sink, slopes = numbers(9, 9), torch.randn(4), torch.rand(4)
        for _ in range(3):
            self.near(ht.attention_with_cache(q, k, v, lengths, sink=sink), wanted(q, k, v, [9, 9], sink=sink, is_causal=True))
            sink.normal_()
        one = ht.attention_with_cache(q, k, v, lengths, alibi_slopes=slopes)
        slopes *= 2
        self.assertFalse(torch.equal(one, ht.attention_with_cache(q, k, v, lengths, alibi_slopes=slopes)))
        with self.assertRaisesRegex(ValueError, "alibi_slopes requires a gradient"):
            ht.attention_with_cache(q, k, v, lengths, alibi_slopes=slopes.clone().requires_grad_())
        with self.assertRaisesRegex(ValueError, r"sink is \(3,\)"):
            ht.attention_with_cache(q, k, v, lengths, sink=sink[:3])


class ListsTest(Base):
    """Documents, of which a call that was made before is checked no more but for its numbers."""

    def made_again(self, call):
        call()
        with unittest.mock.patch.object(kept_calls, "checked", side_effect=AssertionError("checked again")):
            return call()

    def test_documents_are_checked_once_and_read_each_time(self):
        q, k, v = (torch.randn(12, heads, 16, requires_grad=True) for heads in (4, 2, 2))
        of_q, of_k, slopes, sink = numbers(0, 5, 12), numbers(0, 9, 12), torch.rand(2, 4), torch.randn(4)
        for more in ({}, {"alibi_slopes": slopes}, {"sink": sink}, {"window": (3, 1)}):
            for ends in ((of_q,), (of_q, of_k), (numbers(0, 0, 12), numbers(0, 7, 7)), (numbers(0, 1, 2), of_q)):
                call = lambda: ht.attention_varlen(q, k, v, *ends, is_causal="window" not in more, **more)  # noqa: B023, E731
                with self.subTest(more=list(more), ends=ends):
                    made = self.made_again(call)
                    direct.known.clear()
                    self.assertTrue(torch.equal(made, call()))
                    for again, first in zip(*(torch.autograd.grad(o.sum(), (q, k, v)) for o in (made, call()))):
                        self.assertTrue(torch.equal(again, first))
        for wrong, error, words in (
            (numbers(0, 13, 12), RuntimeError, r"cu_seqlens_q\[0\]\[2\] is 12, after 13"), (numbers(0, 5, 12, dtype=torch.int64), TypeError, "must be torch.int32"),
            (numbers(12), ValueError, "at least 2"), ([0, 5, 12], TypeError, "is a list"),
        ):  # fmt: skip
            ht.attention_varlen(q, k, v, of_q)
            with self.subTest(words), self.assertRaisesRegex(error, words):
                ht.attention_varlen(q, k, v, wrong)
        with self.assertRaisesRegex(ValueError, "requires a gradient"):
            ht.attention_varlen(q, k, v, of_q, alibi_slopes=slopes.clone().requires_grad_())

    def test_a_batch_of_one_may_leave_its_dimension_out(self):
        q, k, v = (torch.randn(1, 2, 12, 16) for _ in range(3))
        ends = numbers(0, 5, 12)
        made = [self.made_again(lambda e=e: ht.attention(q, k, v, is_causal=True, cu_seqlens_q=e)) for e in (ends, ends[None])]
        self.assertTrue(torch.equal(*made))

    def test_padding_is_checked_once(self):
        q, k, v = (t.transpose(1, 2).contiguous() for t in drawn(new=1))
        for lengths, pad in ((numbers(3, 9), numbers(0, 4)), (numbers(9, 1), numbers(8, 0))):
            o = self.made_again(lambda n=lengths, p=pad: flash_attn_with_kvcache(q, k, v, cache_seqlens=n, cache_leftpad=p, causal=True))
            for b in range(2):
                rows = (t[b : b + 1, int(pad[b]) : int(lengths[b])].transpose(1, 2) for t in (k, v))
                want = wanted(q[b : b + 1].transpose(1, 2), *rows, [int(lengths[b] - pad[b])])
                self.assertLess(float((o[b : b + 1].transpose(1, 2).double() - want).abs().max()), 2e-5)


class NewKeysTest(Base):
    """flash_attn_with_kvcache, and FlashAttention-3's."""

    def test_new_keys_are_written_where_each_call_says(self):
        for call in (flash_attn_with_kvcache, third):
            q, k, v = (t.transpose(1, 2).contiguous() for t in drawn(new=1))
            new = [torch.randn(2, 1, 2, 16) for _ in range(2)]
            for lengths in (numbers(3, 8), numbers(0, 5), numbers(7, 7, dtype=torch.int64), 4, 6, numbers(2)[0]):
                want = [t.clone() for t in (k, v)]
                at = lengths.tolist() if isinstance(lengths, torch.Tensor) and lengths.dim() else [int(lengths)] * 2
                for t, n in zip(want, new):
                    for b in range(2):
                        t[b, at[b]] = n[b, 0]
                o = call(q, k, v, *new, cache_seqlens=lengths, causal=True)
                self.assertTrue(torch.equal(k, want[0]) and torch.equal(v, want[1]))
                exact = wanted(*(t.transpose(1, 2) for t in (q, k, v)), [n + 1 for n in at]).transpose(1, 2)
                self.assertLess(float((o.double() - exact).abs().max()), 2e-5)
                for t in new:
                    t.normal_()

    def test_nothing_is_written_by_a_call_that_is_refused(self):
        pages = numbers(0, 1, 2, 3).view(2, 2)
        wrong = numbers(0, 1, 9, 3).view(2, 2)  # whose page 9 has old keys alone
        cases = [
            (ValueError, "scale is nan", {"softmax_scale": float("nan")}, None), (ValueError, "softcap is nan", {"softcap": float("nan")}, None),
            (ValueError, "3 query heads cannot share 2", {"q": torch.randn(2, 1, 3, 16)}, None),
            (TypeError, "q is torch.float16", {"q": torch.randn(2, 1, 4, 16).half()}, None),
            (TypeError, "scale is a str", {"softmax_scale": "x"}, None), (TypeError, "return_softmax_lse is 'x'", {"return_softmax_lse": "x"}, None),
            (RuntimeError, "a sequence of 10 keys", {"cache_seqlens": numbers(9, 4)}, None),
            (ValueError, "names page 9: there are pages 0 to 3", {"cache_seqlens": numbers(5, 6)}, wrong),
        ]  # fmt: skip
        of_slopes = [
            (ValueError, r"alibi_slopes is \(3,\)", {"alibi_slopes": torch.rand(3)}, None),
            (ValueError, "a number that is not finite", {"alibi_slopes": torch.tensor([1.0, 2.0, float("inf"), 0.0])}, None),
        ]
        of_sinks = [(ValueError, r"sink is \(3,\)", {"s_aux": torch.rand(3)}, None)]
        for call, table, more in ((flash_attn_with_kvcache, "block_table", of_slopes), (third, "page_table", of_sinks)):
            for once in range(2):  # the second time such calls were made before
                for error, words, change, paged in cases + more:
                    named = {"q": torch.randn(2, 1, 4, 16), "k": torch.randn(2, 1, 2, 16), "v": torch.randn(2, 1, 2, 16), "cache_seqlens": numbers(3, 4)}
                    kept = [torch.randn(2, 9, 2, 16) if paged is None else torch.randn(4, 4, 2, 16) for _ in range(2)]
                    if paged is not None:
                        named[table] = paged
                    good = dict(named, **{name: t for name, t in change.items() if name == "alibi_slopes"}, **{table: pages} if paged is not None else {})
                    if once and "alibi_slopes" not in change:
                        call(k_cache=kept[0], v_cache=kept[1], **good)
                    before = [t.clone() for t in kept]
                    with self.subTest(words), self.assertRaisesRegex(error, words):
                        call(k_cache=kept[0], v_cache=kept[1], **{**named, **change})
                    self.assertTrue(all(map(torch.equal, kept, before)), words)

    def test_nothing_is_written_by_a_call_with_lists_that_is_refused(self):
        """FlashAttention-3's, where sequences are padded, chosen or packed."""
        both = numbers(0, 1, 9, 3).view(2, 2)
        packed = {"q": torch.randn(2, 4, 16), "cu_seqlens_q": numbers(0, 1, 2), "max_seqlen_q": 1}
        cases = [
            (ValueError, "scale is nan", {"softmax_scale": float("nan")}), (ValueError, "softcap is nan", {"softcap": float("nan")}),
            (ValueError, r"sink is \(3,\)", {"s_aux": torch.rand(3)}), (ValueError, "3 query heads cannot share 2", {"q": torch.randn(2, 1, 3, 16)}),
            (TypeError, "q is torch.float16", {"q": torch.randn(2, 1, 4, 16).half()}), (ValueError, "scale is inf", {**packed, "softmax_scale": float("inf")}),
            (ValueError, "names page 9", {"page_table": both, "cache_seqlens": numbers(3, 5)}),
            (ValueError, "names page 9", {"page_table": both.flip(0), "cache_seqlens": numbers(5, 3), "cache_batch_idx": numbers(0, 1)}),
        ]  # fmt: skip
        for error, words, change in cases:
            kept = [torch.randn(4, 4, 2, 16) for _ in range(2)]
            before = [t.clone() for t in kept]
            named = {"q": torch.randn(2, 1, 4, 16), "k": torch.randn(2, 1, 2, 16), "v": torch.randn(2, 1, 2, 16), "cache_seqlens": numbers(3, 2),
                     "cache_leftpad": numbers(0, 1), "cache_batch_idx": None if "page_table" in change else numbers(2, 1)}  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                third(k_cache=kept[0], v_cache=kept[1], **{**named, **change})
            self.assertTrue(all(map(torch.equal, kept, before)), words)

    def test_rotary_positions_that_are_not_there_are_refused(self):
        angles = torch.rand(2, 9, 4)
        for call in (flash_attn_with_kvcache, third):
            k, v, new = torch.zeros(2, 8, 2, 16), torch.zeros(2, 8, 2, 16), torch.randn(2, 1, 2, 16)
            with self.assertRaisesRegex(IndexError, "rotary_cos and rotary_sin have 9 positions, and a row is at 11"):
                call(torch.randn(2, 5, 4, 16), k, v, new, new, rotary_cos=angles[0], rotary_sin=angles[1], cache_seqlens=numbers(3, 7), causal=True)
            self.assertFalse(k.any() or v.any())

    def test_lengths_in_few_bits_do_not_wrap(self):
        """251 and 5 are 0 in eight bits."""
        q, k, v = (t.transpose(1, 2).contiguous() for t in drawn(new=2, room=256, batch=1))
        new = [torch.randn(1, 5, 2, 16) for _ in range(2)]
        calls = [(flash_attn_with_kvcache, {}), (third, {}), (third, {"attention_chunk": 256}), (flash_attn_with_kvcache, {"cache_leftpad": True})]
        for (call, more), few in itertools.product(calls, (torch.uint8, torch.int16, torch.uint16)):
            made = []
            for dtype in (torch.int32, few):
                named = {name: numbers(3, dtype=dtype) if value is True else value for name, value in more.items()}
                made.append(call(q, k.clone(), v.clone(), *new, cache_seqlens=numbers(251, dtype=dtype), causal=True, **named))
            self.assertTrue(torch.equal(*made), (few, more))
        q, used = torch.randn(3, 4, 16), numbers(1)
        k = v = torch.randn(9, 2, 16)
        ends = numbers(0, 3), numbers(0, 9), 3, 9
        want, made = (fa_varlen(q, k, v, *ends, seqused_k=used.to(few), attention_chunk=2) for few in (torch.int32, torch.uint8))
        self.assertTrue(torch.equal(made, want))

    def test_new_keys_of_no_length_are_none(self):
        q, k, v = (t.transpose(1, 2).contiguous() for t in drawn())
        angles = torch.randn(2, 16, 8)
        for rotary in ((), tuple(angles)):
            o = flash_attn_with_kvcache(q, k, v, k[:, :0], v[:, :0], *rotary, cache_seqlens=numbers(3, 9))
            self.assertEqual(o.shape, q.shape)


_A_TORCH_WITHOUT = """
import torch

del torch._C._is_any_autocast_enabled
from gpu_headroom.torch import direct
from gpu_headroom.torch.flash_attn import flash_attn_with_kvcache

assert not direct._direct_is_possible
new = torch.randn(1, 1, 2, 16)
print(*flash_attn_with_kvcache(new, torch.randn(1, 9, 2, 16), torch.randn(1, 9, 2, 16), new, new, cache_seqlens=torch.tensor([3])).shape)
"""


class OtherTorchTest(Base):
    def test_a_torch_without_what_tells_of_autocast(self):
        ended = subprocess.run([sys.executable, "-c", _A_TORCH_WITHOUT], capture_output=True, text=True, timeout=300, env=dict(os.environ))
        self.assertEqual(ended.stdout.strip(), "1 1 2 16", ended.stderr)


if __name__ == "__main__":
    unittest.main()
