"""hd.FullyShardedDataParallel against one process with the ranks' micro-batches, and what a rank holds meanwhile. Exit code 77 says: skipped."""

import copy
import unittest

from dist_ranks import hd, ranks_do, torch  # (which skips where there is no torch)
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from dist_net import Net, SameBits, batches, loss_of, same
from gpu_headroom.torch.dist import fully_sharded


class FullyShardedTest(SameBits):
    def test_fully_sharded(self):
        for prefetch in (0, 2):
            for checkpoints in (None, False, True):
                with self.subTest(prefetch=prefetch, checkpoints=checkpoints):

                    def make(comm, device, prefetch=prefetch, checkpoints=checkpoints):
                        model = hd.FullyShardedDataParallel(Net(checkpoints).to(device), comm, prefetch=prefetch)
                        return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.whole_parameters

                    self.same_bits(make, also=lambda step, rank: step > 0)

    def test_units(self):
        """Blocks whose parameters travel together, one in another, and a rest with a tied weight."""

        class Blocks(nn.Module):
            def __init__(self, checkpoints):
                super().__init__()
                self.tokens, self.head = nn.Embedding(30, 12), nn.Linear(12, 30, bias=False)
                self.head.weight = self.tokens.weight
                self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 31), nn.GELU(), nn.Linear(31, 12)) for _ in range(4)])
                self.blocks[1][1].bias.requires_grad = False
                self.sometimes = nn.Linear(12, 12)
                self.checkpoints = checkpoints

            def forward(self, tokens, also=False):
                x = self.tokens(tokens)
                for block in self.blocks:
                    x = x + (block(x) if self.checkpoints is None else checkpoint(block, x, use_reentrant=self.checkpoints))
                return self.head(self.sometimes(x) if also else x)

        def body(comm, prefetch, checkpoints):
            torch.manual_seed(0)
            twin = Blocks(checkpoints)
            torch.manual_seed(comm.rank)  # rank 0's values count
            net = Blocks(checkpoints)
            if comm.rank == 0:
                net.load_state_dict(twin.state_dict())
            model = hd.FullyShardedDataParallel(net, comm, prefetch=prefetch, units=[*net.blocks, net.blocks[2][3], net.sometimes])
            optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (twin, model)]
            for step in range(3):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                tokens = batches(step, comm.ranks)
                for one in tokens:
                    loss_of(twin, one, step > 0).backward()
                for p in twin.parameters():
                    p.grad = None if p.grad is None else p.grad / comm.ranks
                with torch.no_grad():
                    model(tokens[comm.rank][:, :-1], True)  # what a pass without gradients leaves is not used later
                loss_of(model, tokens[comm.rank], step > 0).backward()
                held = [p.rows.untyped_storage().size() for u in model._units.all for p in u.lent]
                missing = [n for n, p in twin.named_parameters() if (p.grad is None) != (dict(net.named_parameters())[n].grad is None)]
                if any(held) or missing:
                    return f"step {step}: {held} {missing}"
                for optimizer in optimizers:
                    optimizer.step()
            return same(model.whole_parameters(), {n: p.detach() for n, p in twin.named_parameters(remove_duplicate=False)}) or "right"

        for prefetch, checkpoints in ((0, None), (1, None), (2, False), (1, True)):
            with self.subTest(prefetch=prefetch, checkpoints=checkpoints):
                said = ranks_do(3, lambda comm, p=prefetch, c=checkpoints: body(comm, p, c))
                self.assertEqual(said, ["right"] * 3)

    def test_units_in_low_precision_and_clipped(self):
        def body(comm):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 8))
            rounded, x = copy.deepcopy(net).bfloat16(), torch.randn(comm.ranks, 4, 16)
            model = hd.FullyShardedDataParallel(net, comm, torch.bfloat16, units=[net[0], net[2]])
            made = model(x[comm.rank].bfloat16())
            made.float().square().sum().backward()
            gradients = []
            for one in x:
                rounded.zero_grad()
                got = rounded(one.bfloat16())
                got.float().square().sum().backward()
                gradients.append([p.grad.float() for p in rounded.parameters()])
                if one is x[comm.rank] and not torch.equal(got, made):
                    return "result"
            whole = {}
            for (name, p), parts in zip(net.named_parameters(), zip(*gradients)):
                want = (sum(parts) / comm.ranks).bfloat16().float().view(-1)
                part = -(-want.numel() // comm.ranks)
                padded = nn.functional.pad(want, (0, part * comm.ranks - want.numel()))
                whole[name] = want
                if p.grad.dtype != torch.float32 or not torch.equal(p.grad, padded[comm.rank * part : (comm.rank + 1) * part]):
                    return name
            norm = model.clip_grad_norm_(0.01)
            want = torch.cat(list(whole.values())).norm()
            return "right" if torch.allclose(norm, want) else f"{norm} {want}"

        self.assertEqual(ranks_do(2, body), ["right"] * 2)

    def test_what_a_rank_holds(self):
        def body(comm):
            torch.manual_seed(0)
            model = hd.FullyShardedDataParallel(Net(), comm, compute_dtype=torch.bfloat16)
            net, seen = model.module, []
            net.up.register_forward_hook(lambda layer, inputs, made: seen.append(made.dtype))
            loss = loss_of(model, batches(0, 3)[comm.rank], False)
            lent = [name for layer in net.modules() for name in layer.__dict__ if name in ("weight", "bias")]
            loss.backward()
            gradients = [(p.grad.shape, p.grad.dtype) == (p.shape, torch.float32) for p in net.parameters() if p.grad is not None]
            return seen, lent, [tuple(p.shape) for p in (net.up.weight, net.tokens.weight, net.norm.weight)], all(gradients), len(gradients)

        for said in ranks_do(3, body):
            self.assertEqual(said, ([torch.bfloat16], [], [(160,), (120,), (12,)], True, 6))

    def test_what_was_gathered_ahead_is_not_used_after_an_update(self):
        """A forward pass that ends early, and a backward pass that ends early, have begun to gather matrices that then change."""

        def body(comm):
            torch.manual_seed(0)
            net = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

            class Some(nn.Module):
                def __init__(self, layers):
                    super().__init__()
                    self.layers = layers

                def forward(self, x, n):
                    for layer in self.layers[:n]:
                        x = layer(x)
                    return x

            alone, model = Some(copy.deepcopy(net)), hd.FullyShardedDataParallel(Some(net), comm, prefetch=2)
            x, differ = torch.randn(4, 6), []
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (alone, model)]  # updates what had no part, too
            for n in (3, 1, 3, 2, 3):
                for m, optimizer in zip((alone, model), optimizers):
                    optimizer.zero_grad(set_to_none=False)
                    m(x, n).square().sum().backward()
                    optimizer.step()
                differ += same(model.whole_parameters(), {n: p.detach() for n, p in alone.named_parameters()})
                with torch.no_grad():
                    differ += [] if torch.equal(model(x, 3), alone(x, 3)) else ["result"]
            return differ

        self.assertEqual(ranks_do(2, body), [[], []])

    def test_low_precision_on_the_wire(self):
        """The matrices are rounded, the masters are not: the gradients are those of a rounded copy, summed in FP32 and rounded once."""

        def body(comm):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30, bias=False))
            rounded = copy.deepcopy(net).to(torch.bfloat16)
            masters = {n: p.detach().clone() for n, p in net.named_parameters()}
            model = hd.FullyShardedDataParallel(net, comm, compute_dtype=torch.bfloat16)
            differ = same(model.whole_parameters(), masters)
            loss_of_pair(model, batches(0, 2)[comm.rank]).backward()
            gradients = []
            for tokens in batches(0, 2):
                rounded.zero_grad()
                loss_of_pair(rounded, tokens).backward()
                gradients.append([p.grad.float() for p in rounded.parameters()])
            for p, one, two in zip(net.parameters(), *gradients):
                want = ((one + two) / 2).to(torch.bfloat16).float().view(-1)
                part = want.numel() // 2
                if not torch.equal(p.grad, want[comm.rank * part : (comm.rank + 1) * part]):
                    differ.append("gradient")
            return differ

        def loss_of_pair(net, tokens):
            return nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())

        self.assertEqual(ranks_do(2, body), [[], []])

    def test_a_norm_in_its_own_type_between_layers(self):
        """As Llama's in transformers: the product with its FP32 vector is FP32, and the next layer's matrix is not."""

        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.rand(16))

            def forward(self, x):
                return self.weight * x

        def body(comm):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(16, 16, bias=False), Scale(), nn.Linear(16, 16, bias=False))
            twin, x = copy.deepcopy(net), torch.randn(4, 16)
            model = hd.FullyShardedDataParallel(net, comm, compute_dtype=torch.bfloat16)
            made = model(x)
            made.float().square().sum().backward()
            first, scale, last = (m.weight for m in twin)
            want = (scale * (x.bfloat16() @ first.bfloat16().T)).bfloat16() @ last.bfloat16().T
            want.float().square().sum().backward()
            differ = [] if torch.equal(made, want) else ["result"]
            for got, p in zip(net.parameters(), twin.parameters()):
                part = p.grad if p.dim() == 1 else p.grad.view(comm.ranks, -1)[comm.rank]
                differ += [] if got.grad.dtype == torch.float32 and torch.equal(got.grad, part) else ["gradient"]
            return differ

        self.assertEqual(ranks_do(2, body), [[], []])

    def test_a_matrix_is_whole_only_while_its_layer_runs(self):
        def body(comm):
            wholes, most = [], {"forward": 0, "backward": 0}
            gathered = fully_sharded._Shared.gathered

            def watched(self):
                made = gathered(self)
                wholes.append(StorageWeakRef(made.untyped_storage()))
                return made

            def count(when):
                comm.all_reduce(torch.ones(1), later=True).wait()  # the thread that gathered has let go
                most[when] = max(most[when], sum(not w.expired() for w in wholes))

            fully_sharded._Shared.gathered = watched
            model = hd.FullyShardedDataParallel(nn.Sequential(*(nn.Linear(24, 24) for _ in range(12))), comm)
            for layer in model.module:
                layer.register_forward_pre_hook(lambda layer, inputs: count("forward"))
                layer.register_full_backward_hook(lambda layer, before, after: count("backward"))
            made = model(torch.ones(3, 24, requires_grad=True))
            count("forward")
            made.sum().backward()
            return len(wholes), most["forward"], most["backward"] <= 2, all(w.expired() for w in wholes)

        self.assertEqual(ranks_do(2, body), [(24, 0, True, True)] * 2)

    def test_clipping_is_by_the_whole_norm(self):
        def body(comm):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.Linear(9, 5))
            twin, model, x = copy.deepcopy(net), hd.FullyShardedDataParallel(net, comm), torch.randn(comm.ranks, 4, 7)
            model(x[comm.rank]).square().sum().backward()
            sum(twin(one).square().sum() / comm.ranks for one in x).backward()
            norm, want = model.clip_grad_norm_(0.5), nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
            for p, q in zip(net.parameters(), twin.parameters()):
                part = p.numel()
                q = q.grad.view(-1) if p.dim() == 1 and p.shape == q.shape else nn.functional.pad(q.grad.view(-1), (0, part * comm.ranks - q.numel()))
                q = q if q.numel() == part else q[comm.rank * part : (comm.rank + 1) * part]
                if not torch.allclose(p.grad.view(-1), q, atol=1e-6):
                    return "gradients"
            return "right" if torch.allclose(norm, want) and want > 0.5 else f"norm {norm} {want}"

        self.assertEqual(ranks_do(3, body), ["right"] * 3)

    def test_what_is_refused(self):
        with hd.join() as comm:
            for module, options in ((Net(), {"units": [nn.Linear(2, 2)]}), (nn.MultiheadAttention(8, 2), {}), (Net(), {"prefetch": -1})):
                with self.assertRaises(ValueError):
                    hd.FullyShardedDataParallel(module, comm, **options)


if __name__ == "__main__":
    unittest.main()
