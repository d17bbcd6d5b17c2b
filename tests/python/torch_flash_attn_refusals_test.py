"""Wrong arguments of flash-attn's and FlashAttention-3's functions: a sentence of one line, before a cache is written."""

import unittest

from torch_cases import Base, torch

import gpu_headroom.torch as ht
from gpu_headroom.torch import flash_attn as fa
from gpu_headroom.torch import flash_attn_3 as fa3


def numbers(*values):
    return torch.tensor(values, dtype=torch.int32)


class RefusalsTest(Base):
    def refused(self, error, words, call, *given, **named):
        with self.subTest(words), self.assertRaisesRegex(error, words) as caught:
            call(*given, **named)
        if hasattr(caught, "exception"):
            self.assertNotIn("\n", str(caught.exception))

    def of_a_cache(self, call, pages, table, cases):
        for error, words, change in cases:
            named = {"q": torch.randn(2, 1, 4, 16), "k_cache": torch.randn(2, 9, 2, 16), "v_cache": torch.randn(2, 9, 2, 16), "cache_seqlens": numbers(3, 4),
                     "k": torch.randn(2, 1, 2, 16), "v": torch.randn(2, 1, 2, 16)}  # fmt: skip
            if table in change:
                named.update(k_cache=pages.clone(), v_cache=pages.clone())
            named.update(change)
            caches = [named[name] for name in ("k_cache", "v_cache") if isinstance(named[name], torch.Tensor)]
            before = [t.clone() for t in caches]
            self.refused(error, words, call, **named)
            self.assertTrue(all(map(torch.equal, caches, before)), f"{words}: nothing was written")

    def test_caches(self):
        new, angles = torch.randn(2, 1, 2, 16), torch.ones(16, 4)
        cases = [
            (TypeError, "q is None: a tensor", {"q": None}),
            (TypeError, r"k_cache is \[1\]: a tensor", {"k_cache": [1]}),
            (ValueError, "v_cache has 2 dimensions", {"v_cache": torch.ones(2, 2)}),
            (ValueError, r"k is torch.float32 \(2, 1, 1, 16\), it must be torch.float32 \(2, 1, 2, 16\), as k_cache", {"k": new[:, :, :1]}),
            (ValueError, r"v is torch.float32 \(1, 1, 2, 16\), it must be", {"v": new[:1]}),
            (ValueError, r"k is torch.float16 .* it must be torch.float32", {"k": new.half()}),
            (TypeError, "k is 'x': a tensor", {"k": "x"}),
            (ValueError, r"q is \(2, 1, 4, 8\) and k_cache is .*: head_dim must agree", {"q": torch.randn(2, 1, 4, 8)}),
            (ValueError, "cache_batch_idx has 7: numbers from 0 to 1", {"cache_batch_idx": numbers(7, 0)}),
            (ValueError, "cache_batch_idx has -1", {"cache_batch_idx": numbers(0, -1)}),
            (ValueError, r"cache_batch_idx is torch.bool \(2,\), it must be whole numbers", {"cache_batch_idx": torch.ones(2, dtype=torch.bool)}),
            (TypeError, "cache_batch_idx is 3: a tensor", {"cache_batch_idx": 3}),
            (ValueError, r"cache_leftpad is torch.int32 \(3,\), it must be whole numbers \(2,\)", {"cache_leftpad": numbers(0, 0, 0)}),
            (ValueError, r"cache_seqlens is torch.bool \(2,\)", {"cache_seqlens": torch.ones(2, dtype=torch.bool)}),
            (ValueError, r"rotary_sin is torch.float32 \(16, 2\), it must be .* like rotary_cos", {"rotary_cos": angles, "rotary_sin": angles[:, :2]}),
            (ValueError, "of at most 8 dimensions: half of head_dim", {"rotary_cos": torch.ones(16, 9), "rotary_sin": torch.ones(16, 9)}),
            (TypeError, "rotary_cos is 1.5: a tensor", {"rotary_cos": 1.5, "rotary_sin": angles}),
            (TypeError, "causal is 'x': True or False", {"causal": "x"}),
            (TypeError, r"causal is a tensor of torch.float32 \(3,\): True or False", {"causal": torch.ones(3)}),
            (TypeError, "rotary_interleaved is 'no': True or False", {"rotary_cos": angles, "rotary_sin": angles, "rotary_interleaved": "no"}),
        ]
        pages = torch.randn(4, 4, 2, 16)
        for call, table in ((fa.flash_attn_with_kvcache, "block_table"), (fa3.flash_attn_with_kvcache, "page_table")):
            self.of_a_cache(call, pages, table, cases)
            self.of_a_cache(call, pages, table, [
                (ValueError, f"{table} is torch.int64", {table: torch.zeros(2, 2, dtype=torch.int64)}),
                (ValueError, rf"{table} is torch.int32 \(1, 2\), it must be torch.int32 \(2, pages", {table: numbers(0, 1)[None]}),
                (ValueError, f"{table} names page -1: there are pages 0 to 3", {table: torch.stack([numbers(-1, 0), numbers(2, 3)])}),
                (ValueError, f"{table} names page 9: there are pages 0 to 3", {table: torch.stack([numbers(0, 1), numbers(2, 9)])}),
                (TypeError, f"{table} is 3: a tensor", {table: 3}),
            ])  # fmt: skip

    def test_descales(self):
        """They were looked at after new keys had been written."""
        narrow = torch.float8_e4m3fn
        q, keys, pages = torch.randn(2, 1, 4, 16).to(narrow), torch.zeros(2, 9, 2, 16).to(narrow), torch.zeros(4, 4, 2, 16).to(narrow)
        new = torch.randn(2, 1, 2, 16).to(narrow)
        for cached, table in ((keys, None), (pages, torch.stack([numbers(0, 1), numbers(2, 3)]))):
            for name in ("q_descale", "k_descale", "v_descale"):
                for error, words, scales in ((ValueError, r"a descale is \(3, 2\), it must be", torch.ones(3, 2)),
                                             (ValueError, r"a descale is \(2, 3\), it must be", torch.ones(2, 3)),
                                             (ValueError, "a descale has 1 dimensions", torch.ones(2)), (TypeError, "a descale is 2.0", 2.0)):  # fmt: skip
                    k_cache, v_cache = cached.clone(), cached.clone()
                    given = {"k": new, "v": new, "cache_seqlens": numbers(3, 4), "page_table": table, name: scales}
                    self.refused(error, words, fa3.flash_attn_with_kvcache, q, k_cache, v_cache, **given)
                    for cache in (k_cache, v_cache):
                        self.assertTrue(torch.equal(cache.float(), cached.float()), f"{name} {words}: nothing was written")

    def test_lists_of_a_packed_cache(self):
        named = {"q": torch.randn(5, 4, 16), "k_cache": torch.randn(2, 9, 2, 16), "v_cache": torch.randn(2, 9, 2, 16), "cache_seqlens": numbers(3, 4)}
        call = fa3.flash_attn_with_kvcache
        self.refused(ValueError, "of cu_seqlens_q has 3 tokens, and max_seqlen_q is 2", call, **named, cu_seqlens_q=numbers(0, 2, 5), max_seqlen_q=2)
        self.refused(ValueError, r"cu_seqlens_q is \[0, 4, 2\]: from 0 on, in order", call, **named, cu_seqlens_q=numbers(0, 4, 2), max_seqlen_q=4)
        self.refused(ValueError, "needs max_seqlen_q, a whole number, and it is 1.5", call, **named, cu_seqlens_q=numbers(0, 2, 5), max_seqlen_q=1.5)
        new = {"k": torch.randn(3, 2, 16), "v": torch.randn(3, 2, 16), "cu_seqlens_k_new": numbers(0, 1, 9)}
        named["q"] = torch.randn(2, 1, 4, 16)
        self.refused(ValueError, r"cu_seqlens_k_new is \[0, 1, 9\]: from 0 on, in order, up to 3 tokens", call, **named, **new)

    def test_what_a_table_holds_behind_a_sequence(self):
        """Anything: it is not read."""
        q, pages, cu = torch.randn(3, 4, 16), torch.randn(4, 4, 2, 16), numbers(0, 1, 3)
        of_k, good, odd = numbers(0, 5, 7), torch.stack([numbers(0, 1), numbers(2, 3)]), torch.stack([numbers(0, 1), numbers(2, 1 << 30)])
        run = lambda table: fa.flash_attn_varlen_func(q, pages, pages, cu, of_k, 2, 5, causal=True, block_table=table)  # noqa: E731
        self.assertTrue(torch.equal(run(odd), run(good)))
        self.refused(ValueError, "block_table names page 9: there are pages 0 to 3", run, torch.stack([numbers(0, 9), numbers(2, 3)]))
        named = {"cache_seqlens": numbers(5, 2), "cache_leftpad": numbers(0, 0)}
        new = [fa3.flash_attn_with_kvcache(q[:2, None], pages, pages, page_table=table, **named) for table in (good, odd)]
        self.assertTrue(torch.equal(*new))

    def test_packed(self):
        t, cu = torch.randn, numbers(0, 2, 6)
        self.refused(ValueError, r"qkv is \(2, 6, 4, 4, 16\): a tensor \[batch, len, 3,", fa.flash_attn_qkvpacked_func, t(2, 6, 4, 4, 16))
        self.refused(TypeError, "qkv is None: a tensor", fa.flash_attn_qkvpacked_func, None)
        self.refused(ValueError, r"kv is \(2, 6, 3, 4, 16\)", fa.flash_attn_kvpacked_func, t(2, 6, 4, 16), t(2, 6, 3, 4, 16))
        self.refused(ValueError, "qkv has 3 dimensions", fa.flash_attn_varlen_qkvpacked_func, t(6, 4, 16), cu, 4)
        self.refused(ValueError, r"kv is \(6, 3, 2, 16\)", fa.flash_attn_varlen_kvpacked_func, t(6, 4, 16), t(6, 3, 2, 16), cu, cu, 4, 4)
        self.refused(ValueError, "qkv of four dimensions needs num_heads_q", fa3.flash_attn_qkvpacked_func, t(2, 6, 8, 16))
        self.refused(ValueError, "num_heads_q is 3: 8 heads are those and twice the key heads", fa3.flash_attn_qkvpacked_func, t(2, 6, 8, 16), num_heads_q=3)
        q, k = t(6, 4, 16), t(6, 2, 16)
        varlen = lambda **named: fa3.flash_attn_varlen_func(q, k, k, cu, cu, 4, 4, **named)  # noqa: E731
        self.refused(ValueError, r"seqused_k is torch.float32 \(2,\), it must be whole numbers", varlen, seqused_k=torch.ones(2))
        self.refused(ValueError, r"seqused_q\[0\] is 3, the sequence has 2 tokens", varlen, seqused_q=numbers(3, 1))
        self.refused(TypeError, "cu_seqlens_k is None: a tensor int32", fa3.flash_attn_varlen_func, q, k, k, cu, None, 4, 4)
        self.refused(ValueError, "lse_partial is .* without head_dim", fa3.flash_attn_combine, t(3, 2, 6, 4, 16), t(3, 2, 6, 2))
        self.refused(TypeError, "v is None: a tensor", fa3.flash_attn_func, t(2, 6, 4, 16), t(2, 6, 2, 16), None)

    def test_yes_and_no(self):
        q, k = torch.randn(2, 6, 4, 16), torch.randn(2, 6, 2, 16)
        heads_first = [t.transpose(1, 2) for t in (q, k, k)]
        for name in ("return_lse", "deterministic", "enable_gqa"):
            self.refused(TypeError, f"{name} is a torch.Tensor: True or False", ht.attention, *heads_first, **{name: torch.ones(3)})
            self.refused(TypeError, f"{name} is a str: True or False", ht.attention, *heads_first, **{name: "no"})
        self.refused(TypeError, "is_causal is 'no'", ht.attention_with_cache, *heads_first, is_causal="no")
        self.refused(TypeError, "causal is 0.0: True or False", fa.flash_attn_func, q, k, k, causal=0.0)
        for causal in (1, True, torch.tensor(True)):  # what flash-attn takes, too
            self.assertTrue(torch.equal(fa.flash_attn_func(q, k, k, causal=causal), fa.flash_attn_func(q, k, k, causal=True)))
        self.refused(ValueError, r"layout a tensor of torch.float32 \(4, 4\): bhld", ht.attention, *heads_first, layout=torch.ones(4, 4))
        self.refused(TypeError, r"window_size is a tensor of torch.float32 \(4, 4\): two whole", fa.flash_attn_func, q, k, k, window_size=torch.ones(4, 4))


if __name__ == "__main__":
    unittest.main()
