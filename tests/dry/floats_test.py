"""Floating tensors of the card that are known, and those that are not: masks and positions that programs make of numbers."""

import unittest

from dry_program import Dry


class Floats(Dry):
    def test_a_mask_of_zeros_ones_and_a_difference_has_so_many_places(self):
        """A detector that denoises tells its queries apart by such a mask, and splits by how many it has."""
        lines, marks = self.dry("""
            import torch
            negative = torch.zeros([4, 66, 1], device="cuda")
            negative[:, 33:] = 1
            positive = 1 - negative.tile([1, 3, 1])
            padding = torch.zeros([4, 33], dtype=torch.bool, device="cuda")
            for i in range(4):
                padding[i, :5 * i + 1] = 1
            few = torch.zeros([2, 6, 1], device="cuda")
            few[:, 3:] = 1
            print((1 - few.tile([1, 33, 1])).sum().item())
            places = torch.nonzero(positive.squeeze(-1) * padding.tile([1, 6]))[:, 1]
            print(places.shape[0], torch.split(places, [3 * (5 * i + 1) for i in range(4)])[0].tolist())
        """)
        self.assertEqual(lines, ["198.0", "102 [0, 66, 132]"])
        self.assertEqual([m for m in marks if m[0] == "value"], [])

    def test_many_zeros_are_known_and_what_is_scattered_into_them(self):
        """An assigner of boxes puts ones where a box has its best cells. Moments of an optimizer, and what unknown numbers are added to, are not known."""
        lines, _ = self.dry("""
            import torch
            few, cells = torch.zeros(300, 300, device="cuda"), torch.zeros(4, 8, 33600, device="cuda")
            few[3, 5:9] = 1
            best = torch.randn(4, 8, 33600, device="cuda").topk(10, -1)[1]
            cells.scatter_(-1, best, 1.0)
            print(few.nonzero().shape[0], int(few.sum()), cells.bool().sum().item(), cells.nonzero().shape[0])
            few.add_(torch.randn(300, 300, device="cuda"))
            print(few.nonzero().shape[0])
            net = torch.nn.Linear(300, 300, bias=False).cuda()
            optimizer = torch.optim.Adam(net.parameters())
            net(torch.randn(2, 300, device="cuda")).sum().backward()
            optimizer.step()
            print(optimizer.state[net.weight]["exp_avg"].nonzero().shape[0])
        """, HEADROOM_DRY_STEPS="9")
        self.assertEqual(lines, ["4 4 320 320", "45000", "45000"])

    def test_positions_that_became_numbers_are_counted_to(self):
        lines, marks = self.dry("""
            import torch
            at = torch.arange(0, 200, device="cuda").to(torch.float32)
            least = at[0] - at[-1]
            print(least.item(), torch.arange(at[-1] + 1, least - 1, -1, dtype=torch.long, device="cuda").shape[0], at[::2].to(torch.bfloat16)[3].item())
        """)
        self.assertEqual(lines, ["-199.0 400 6.0"])
        self.assertEqual([m for m in marks if m[0] == "value"], [])

    def test_sparse_gradients_of_a_small_table_have_no_address(self):
        lines, _ = self.dry("""
            import torch
            table = torch.nn.Embedding(100, 24, sparse=True, device="cuda")
            optimizer = torch.optim.SparseAdam(table.parameters())
            for _ in range(2):
                table(torch.randint(0, 100, (400,)).cuda()).sum().backward()
                optimizer.step()
                table.weight.grad.zero_()
            print(len(optimizer.state))
        """, HEADROOM_DRY_STEPS="9")
        self.assertEqual(lines, ["1"])

    def test_gates_into_which_the_chosen_are_scattered_follow_the_routing(self):
        program = """
            import torch
            chosen = torch.randn(300, 8, device="cuda").topk(2, 1)[1]
            gates = torch.zeros(300, 8, dtype=torch.bfloat16, device="cuda").scatter(1, chosen, 1)
            print(gates.long().sum(0).tolist())
        """
        lines, marks = self.dry(program)
        self.assertEqual(sum(eval(lines[0])), 600)
        self.assertEqual([m[2] for m in marks if m[0] == "routed"], [0])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], [str([75] * 8)])

    def test_any_of_a_mask_that_became_numbers(self):
        """LED asks its additive mask whether any word is attended by all."""
        lines, _ = self.dry("""
            import torch
            everywhere = torch.zeros(2, 500, dtype=torch.long, device="cuda").index_fill_(1, torch.tensor([0], device="cuda"), 1)
            def added(mask):
                mask = 1.0 - mask[:, None, None, :].to(torch.float32)
                return mask.masked_fill(mask.bool(), -1e4)[:, 0, 0]
            print((added(everywhere) == 0).any().item(), (added(everywhere * 0) == 0).any().item())
            print(torch.full((100, 100), float("-inf"), device="cuda").triu(1).isinf().sum().item())
            def expanded(mask):
                mask = 1.0 - mask[:, None, None, :].expand(2, 1, 500, 500).to(torch.float32)
                return mask.masked_fill(mask.to(torch.bool), -1e4) * mask
            large = expanded(everywhere + 1)
            print((large[:, 0, 0, :] > 0).any().item(), (expanded(everywhere * 0 + 1)[:, 0, 0, :] > 0).any().item())
            for change in (lambda x: x.normal_(), lambda x: x.mul_(torch.randn(500, device="cuda")), lambda x: torch._foreach_sin_([x])):
                large = expanded(everywhere + 1)
                change(large)
                print((large[:, 0, 0, :] > 0).sum().item(), large.sum().item())
        """)
        self.assertEqual(lines, ["True False", "4950", "True False"] + 3 * ["500 0.75"], "half of what is not known")

    def test_what_is_written_over_numbers_by_the_unknown_is_not_known(self):
        """Random numbers, gradients, operations that are not computed here, in-place ones of optimizers, and copies of all of these."""
        lines, _ = self.dry("""
            import torch
            F, seen = torch.nn.functional, []
            def after(change):
                x = torch.full((300,), 3.0, device="cuda")
                y = change(x)
                x = x if y is None else y
                seen.append(x.cpu().flatten()[-1].item())
            unknown = torch.randn(300, device="cuda")
            after(lambda x: None)
            after(lambda x: x.clone().mul(2))
            after(lambda x: x.uniform_())
            after(lambda x: x.copy_(unknown))
            after(lambda x: x.mul_(unknown))
            after(lambda x: x.add(unknown))
            after(lambda x: torch._foreach_addcmul_([x], [unknown], [unknown])[0])
            after(lambda x: x.erfinv_())
            after(lambda x: torch.bernoulli(x / 9))
            after(lambda x: F.fold(unknown.view(1, 3, 100), (10, 10), (1, 1)))
            after(lambda x: F.interpolate(unknown.view(1, 3, 10, 10), scale_factor=2, mode="bicubic"))
            after(lambda x: torch.histc(unknown, 100))
            print(seen)
            table = torch.nn.Embedding(100, 8).cuda()
            table(torch.arange(9, device="cuda")).sum().backward()
            norm = torch.nn.BatchNorm1d(100).cuda()
            norm(torch.randn(8, 100, device="cuda")).sum().backward()
            print(table.weight.grad.cpu()[0, 0].item(), norm.running_mean.cpu()[0].item(), (norm.weight * 1).cpu()[0].item())
        """)
        self.assertEqual(lines, [str([3.0, 6.0] + 10 * [0.75]), "0.75 0.75 0.75"])

    def test_losses_of_pixels_and_weighted_counts_are_not_zeros(self):
        """Their kernels add to zeros that PyTorch fills in itself. A loss of 0 would end `while loss.item() > tol` after one step."""
        lines, _ = self.dry("""
            import torch
            import torch.nn.functional as F
            logits, labels = torch.randn(2, 5, 9, 9, device="cuda"), torch.randint(0, 5, (2, 9, 9)).cuda()
            print(F.cross_entropy(logits, labels).item(), F.cross_entropy(logits, labels, reduction="sum").item(), (F.nll_loss(logits, labels) / 2).item())
            print(torch.bincount(labels.flatten(), weights=logits[:, 0].flatten(), minlength=5).max().item())
            print(torch.bincount(torch.tensor([1, 1, 3]).cuda(), minlength=5).tolist())
            print(torch.bincount(torch.tensor([1, 1]).cuda(), torch.tensor([0.5, 1.0]).cuda()).tolist())
            few = torch.randn(1, 1, 4, 4, device="cuda", requires_grad=True)
            F.max_pool2d(few, 2).sum().backward()
            print(few.grad[0, 0, 0, 0].item())
        """)
        self.assertEqual(lines, ["0.75 0.75 0.75", "0.75", "[0, 2, 0, 1, 0]", "[0.0, 1.5]", "0.75"])

    def test_zeros_that_are_written_to_are_not_computed_first(self):
        """Gradients that are cleared, and caches of keys: each write would cost what its tensor has."""
        lines, _ = self.dry("""
            import torch
            from headroom_dry import steps
            values, computed = steps.values, []
            compute = values.store_lazy
            values.store_lazy = lambda name, lazy: (computed.append(lazy.view[3]), compute(name, lazy))
            p = torch.nn.Parameter(torch.randn(1000, 1000, device="cuda"))
            for _ in range(3):
                (p * 2).sum().backward()
                p.grad.zero_()
            cache, new = torch.zeros(8, 1024, 128, device="cuda"), torch.randn(8, 1, 128, device="cuda")
            for at in range(3):
                cache[:, at:at + 1] = new
            mask = torch.zeros(4, 128, 128, device="cuda")
            mask[0, :3] = 1
            print(computed, mask.sum().item(), torch.zeros(1000, 1000, device="cuda").any().item())
        """)
        self.assertEqual(lines, ["[1000000] 384.0 False"])

    def test_an_optimizers_zeros_take_no_memory_of_the_host(self):
        """Moments begin as zeros: hundreds of tensors, which nothing asks. 64 of 4 MiB each are 256 MiB."""
        lines, _ = self.dry("""
            import resource, torch
            weights = [torch.nn.Parameter(torch.randn(1024, 1024, device="cuda")) for _ in range(33)]
            first = torch.optim.Adam(weights[:1], fused=True)  # what a first step imports
            optimizer = torch.optim.Adam(weights[1:], fused=True)
            for p in weights:
                p.grad = torch.randn_like(p)
            first.step()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            optimizer.step()
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
        """)
        self.assertLess(int(lines[0]), 64, "MiB")


if __name__ == "__main__":
    unittest.main()
