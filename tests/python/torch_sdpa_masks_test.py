"""replace_sdpa: masks given as tensors, which of them are served, and when they are read."""

import itertools
import unittest

from torch_cases import DEVICES, Base, packed, reference, tensors, torch, visible

import gpu_headroom.torch as ht
from gpu_headroom.torch import sdpa


class MasksTest(Base):
    def served(self, mask, q, k, v, again=True):
        """Replaced attention with this mask is right, forward and backward, and ours."""
        want, _ = reference(q, k, v, seen=mask.expand(q.shape[0], 1, q.shape[2], k.shape[2]).cpu())
        up = torch.randn_like(want)
        with ht.replace_sdpa() as seen:
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        self.assertEqual((seen.served, dict(seen.left)), (1, {}))
        self.near(o, want, q.dtype)
        exact = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
        want = torch.autograd.grad(reference(*exact, seen=mask.expand(q.shape[0], 1, q.shape[2], k.shape[2]).cpu())[0], exact, up)
        for got, w in zip(torch.autograd.grad(o, (q, k, v), up.to(o)), want):
            self.near(got, w, q.dtype)
        if again:  # 0 where a key is seen, and -inf
            self.served_as_numbers(mask, q, k, v, o)

    def served_as_numbers(self, mask, q, k, v, want):
        with ht.replace_sdpa() as seen:
            added = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
            self.assertTrue(torch.equal(torch.nn.functional.scaled_dot_product_attention(q, k, v, added, enable_gqa=True), want))
        self.assertEqual(seen.served, 1)

    def test_masks_that_are_windows_padding_or_documents(self):
        def documents(*ends, length=40, **mask):
            return packed([ends], [ends], length, length, **mask)

        for device in DEVICES:
            q, k, v = tensors(device, len_q=40)
            causal = visible(40, 40, is_causal=True)[None, None]
            padding = torch.arange(40) < torch.tensor([[40], [29]])
            left = torch.arange(40) >= torch.tensor([[0], [11]])
            ones = torch.ones(1, 1, 40, 40, dtype=torch.bool)
            for name, mask in (
                ("all", ones), ("causal", causal), ("window", visible(40, 40, window=7)[None, None]),
                ("both sides", visible(40, 40, window=(7, 3))[None, None]), ("after alone", visible(40, 40, window=(99, 3))[None, None]),
                ("padding behind", padding[:, None, None]), ("padding before", left[:, None, None]),
                ("causal, padding behind", causal & padding[:, None, None]), ("causal, padding before", causal & left[:, None, None]),
                ("padding of both", causal & left[:, None, None] & left[:, None, :, None]),
                ("window, padding before", visible(40, 40, window=7) & left[:, None, None]),
                ("a few keys", ones & ((torch.arange(40) > 4) & (torch.arange(40) < 30))),
                ("documents", documents(0, 13, 14, 40)), ("causal documents", documents(0, 13, 14, 40, is_causal=True)),
                ("windows in documents", documents(0, 17, 40, window=5)), ("not all in documents", documents(0, 13, 31, is_causal=True)),
                ("each its own", torch.eye(40, dtype=torch.bool)[None, None]), ("nothing", ~ones),
                ("documents of two sequences", torch.cat([documents(0, 9, 40), documents(0, 22, 31, 40)])),
                ("rows that see nothing", causal & (torch.arange(40) % 40 > 3)[:, None]),
            ):  # fmt: skip
                with self.subTest(name, device=device):
                    self.served(mask.to(device), q, k, v)
            for len_q, len_k, more in ((1, 40, {"is_causal": True}), (9, 40, {"is_causal": True}), (40, 9, {"is_causal": True}), (9, 40, {"window": 5})):
                q, k, v = tensors(device, len_q=len_q, len_k=len_k)
                for align in ("top-left", "bottom-right"):
                    with self.subTest("lengths differ", len_q=len_q, len_k=len_k, align=align):
                        self.served(visible(len_q, len_k, align=align, **more)[None, None].to(device), q, k, v)
            q, k, v = tensors(device, len_q=3, len_k=40)  # a static cache of 40, 17 of which are there
            mask = torch.zeros(1, 1, 3, 40, dtype=torch.bool, device=device)
            mask[..., :17] = visible(3, 17, is_causal=True, align="bottom-right")
            self.served(mask, q, k, v)

    def test_masks_of_nothing(self):
        F = torch.nn.functional
        for device, (batch, len_q, len_k) in itertools.product(DEVICES, ((2, 0, 7), (0, 5, 7), (2, 5, 0), (2, 0, 0), (0, 0, 0))):
            q, k, v = torch.randn(batch, 2, len_q, 8, device=device), *torch.randn(2, batch, 2, len_k, 8, device=device)
            for mask in (torch.ones(len_q, len_k, dtype=torch.bool), torch.zeros(batch, 1, 1, len_k), torch.zeros(1, 1, len_q, 1)):
                with ht.replace_sdpa() as seen:
                    o = F.scaled_dot_product_attention(q, k, v, mask.to(device))
                want = F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), mask)  # on a card torch refuses a mask that is one number a row
                self.assertEqual((o.shape, seen.served), (want.shape, 1), (batch, len_q, len_k, mask.shape))
                if device == "cpu":
                    self.assertEqual(o.stride(), want.stride())
                self.assertTrue(torch.equal(o.cpu(), want))

    def test_masks_where_new_tensors_are_made_on_another_device(self):
        q, k, v = tensors()
        row, key = torch.arange(33)[:, None], torch.arange(40)
        window, padding = (key <= row + 7) & (key > row - 3), (key < torch.tensor([[31], [40]]))[:, None, None]
        want = [reference(q, k, v, seen=seen.expand(2, 1, 33, 40))[0] for seen in (window, padding, window & padding)]
        with torch.device("meta"), ht.replace_sdpa() as seen:
            made = [torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True) for mask in (window, padding, window & padding)]
        self.assertEqual((seen.served, dict(seen.left)), (3, {}))
        for o, exact in zip(made, want):
            self.near(o, exact, torch.float32)

    def test_masks_of_other_shapes(self):
        F = torch.nn.functional
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        mask = visible(40, 40, window=7)
        with ht.replace_sdpa() as seen:
            want = F.scaled_dot_product_attention(q, k, v, mask)
            for given in (mask[None], mask[None, None], mask[None, None].expand(2, 2, -1, -1), mask.expand(2, 2, 40, 40).clone()):
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, given), want))
            three = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), mask.expand(4, 40, 40))
            self.assertTrue(torch.equal(three.unflatten(0, (2, 2)), want))
            low = torch.zeros(40, 40).masked_fill(~mask, torch.finfo(torch.float32).min)
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, low), want))
            of_heads = mask.expand(2, 40, 40).clone()  # torch reads three dimensions as those of heads, not of sequences
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, of_heads), want))
        self.assertEqual((seen.served, dict(seen.left)), (8, {}))
        self.assertIsNone(ht.why_not(q, k, v, mask))
        self.assertIn("flash: chosen", ht.explain(q, k, v, mask))

    def test_masks_that_are_more_are_torchs(self):
        F, torchs = torch.nn.functional, torch.nn.functional.scaled_dot_product_attention
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        holes = torch.ones(40, 40, dtype=torch.bool)
        holes[5, 7] = False
        one_off = visible(40, 40, is_causal=True)
        one_off[20, 20] = False
        heads = torch.stack([visible(40, 40, window=5), visible(40, 40, window=6)])
        prefix = visible(40, 40, is_causal=True)
        prefix[:10, :10] = True  # sees both ways there
        slopes = torch.arange(40.0)[None] * torch.tensor([0.5, 0.25])[:, None, None]
        lowest = torch.full((40, 40), torch.finfo(torch.float32).min)
        for mask, words in ((holes, "a hole"), (one_off, "its rows begin or end"), (heads[None], "differs between heads"), (prefix, "rows begin or end"),
                            (heads, "differs between heads"),
                            (slopes[None], "a bias, as ALiBi's"), (torch.zeros(40, 40).requires_grad_(), "a bias"), (lowest, "the mean of all values")):  # fmt: skip
            with ht.replace_sdpa() as seen:
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, k, v, mask), torchs(q, k, v, mask)))
            self.assertEqual(seen.served, 0)
            self.assertRegex(seen.explain(), words)
        with ht.replace_sdpa() as seen, self.assertRaises(RuntimeError):
            F.scaled_dot_product_attention(q, k, v, torch.ones(3, 40, dtype=torch.bool))
        self.assertIn("attn_mask is (3, 40), which does not fit", seen.explain())
        several = torch.stack([visible(40, 40, window=5), visible(40, 40, is_causal=True)])
        by_mask = torch.vmap(lambda m: F.scaled_dot_product_attention(q, k, v, m))
        with ht.replace_sdpa() as seen:
            self.near(by_mask(several), torch.stack([torchs(q, k, v, m) for m in several]), torch.float32)
            meta = [t.to("meta") for t in (q, k, v, one_off)]
            self.assertEqual(F.scaled_dot_product_attention(*meta).shape, q.shape)
        self.assertRegex(seen.explain(), "inside torch.func's transforms")
        self.assertRegex(seen.explain(), "on meta, where there are no numbers")
        compiled = torch.compile(lambda m: F.scaled_dot_product_attention(q, k, v, m), backend="eager")
        with ht.replace_sdpa() as seen:
            self.near(compiled(one_off), torchs(q, k, v, one_off), torch.float32)
        self.assertIn("cannot be read in compiled code", seen.explain())

    def test_torchs_causal_biases(self):
        from torch.nn.attention.bias import causal_lower_right, causal_upper_left

        F = torch.nn.functional
        for device, (make, align), (len_q, len_k) in itertools.product(
            DEVICES, ((causal_upper_left, "top-left"), (causal_lower_right, "bottom-right")), ((33, 40), (33, 33), (1, 40))
        ):
            with self.subTest(device=device, align=align, len_q=len_q):
                q, k, v = tensors(device, heads=2, len_q=len_q, len_k=len_k)
                want = reference(q, k, v, is_causal=True, align=align)[0]
                bias = make(len_q, len_k)
                with ht.replace_sdpa() as seen:
                    self.near(F.scaled_dot_product_attention(q, k, v, bias), want, torch.float32)
                    self.assertEqual((seen.served, dict(seen.left)), (1, {}))
                    self.near(sdpa._torchs(q, k, v, attn_mask=bias), want, torch.float32, "a name that was imported")
                    exact = [x.detach().double() for x in (q, k, v)]
                    if not (device == "cuda" and align == "bottom-right"):  # torch 2.11 itself gives NaN there in float64
                        self.near(F.scaled_dot_product_attention(*exact, attn_mask=bias), want, torch.float32, "left to torch")
                    F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=1.0)
                    self.assertIs(F.scaled_dot_product_attention, sdpa._sdpa)
                    with self.assertRaisesRegex(ValueError, "should not be used with causal=True"):
                        F.scaled_dot_product_attention(q, k, v, bias, is_causal=True)
                self.assertIn("dropout_p is 1.0", seen.explain())
                compiled = torch.compile(lambda *x: F.scaled_dot_product_attention(*x, attn_mask=bias), fullgraph=True, backend="aot_eager")  # noqa: B023
                with ht.replace_sdpa() as seen:
                    self.near(compiled(q, k, v), want, torch.float32)
                    self.near(compiled(*exact), want, torch.float32, "left to torch")
                self.assertEqual((seen.compiled, "float64" in seen.explain()), (1, True), seen.explain())
                torch._dynamo.reset()

    def test_a_mask_that_numpy_or_data_wrote_is_read_again(self):
        import numpy as np

        F = torch.nn.functional
        q, k, v = tensors(heads=2, len_q=9, len_k=9, grad=False)
        array = np.ones((9, 9), dtype=bool)
        mask = torch.from_numpy(array)
        with ht.replace_sdpa() as seen:
            for write in (lambda: None, lambda: array.__setitem__(slice(None), np.tril(array)), lambda: mask.data.fill_(True)):
                write()
                self.near(F.scaled_dot_product_attention(q, k, v, attn_mask=mask), reference(q, k, v, seen=mask)[0], torch.float32)
        self.assertEqual((seen.served, dict(seen.left)), (3, {}))

    def test_a_mask_inside_a_fake_tensor_mode_is_torchs(self):
        """Nothing can be asked there, not even of a real one."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        seen = torch.ones(6, 6, dtype=torch.bool).tril()
        with ht.replace_sdpa() as replaced, FakeTensorMode(allow_non_fake_inputs=True) as mode:
            for mask in (seen, mode.from_tensor(seen)):
                self.assertEqual(torch.nn.functional.scaled_dot_product_attention(*torch.randn(3, 2, 4, 6, 8), mask).shape, (2, 4, 6, 8))
        self.assertEqual((replaced.served, sum(replaced.left.values())), (0, 2))
        self.assertIn("inside a FakeTensorMode", replaced.explain())

    def test_a_mask_is_read_once_for_each_version(self):
        from unittest import mock

        from gpu_headroom.torch import masks

        F = torch.nn.functional
        q, k, v = (x.detach() for x in tensors(heads=2, len_q=40))
        whole = torch.zeros(1, 1, 64, 64, dtype=torch.bool)
        whole[..., :40, :40] = visible(40, 40, window=7)
        with ht.replace_sdpa() as seen, mock.patch.object(masks, "_find", wraps=masks._find) as find:
            for _ in range(3):  # each layer makes a view of its own
                F.scaled_dot_product_attention(q, k, v, whole[:, :, :40, :40])
            self.assertEqual(find.call_count, 1)
            whole[..., :40, :40] = visible(40, 40, window=9)
            got = F.scaled_dot_product_attention(q, k, v, whole[:, :, :40, :40])
            self.assertEqual(find.call_count, 2)
            self.near(got, reference(q, k, v, window=9)[0], torch.float32)
            for n in (3, 5, 11):  # memory that is given back and lent again is another storage
                got = F.scaled_dot_product_attention(q, k, v, visible(40, 40, window=n))
                self.near(got, reference(q, k, v, window=n)[0], torch.float32)
            with torch.inference_mode():
                mask = visible(40, 40, window=3)
                F.scaled_dot_product_attention(q, k, v, mask)
                mask.copy_(visible(40, 40, window=4))
                self.near(F.scaled_dot_product_attention(q, k, v, mask), reference(q, k, v, window=4)[0], torch.float32)
        self.assertEqual((seen.served, dict(seen.left)), (9, {}))
        for n in range(2 * masks._MOST_KEPT):
            masks.read(torch.ones(1, 40, dtype=torch.bool), q, k)
        self.assertLessEqual(len(masks._kept), masks._MOST_KEPT)


if __name__ == "__main__":
    unittest.main()
