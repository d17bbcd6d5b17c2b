"""Replicas and sharded optimizers of gpu_headroom.torch.dist against one process with the ranks' micro-batches. Exit code 77 says: skipped."""

import copy
import dataclasses
import pickle
import unittest

from dist_ranks import hd, ranks_do, torch  # (which skips where there is no torch)
from torch import nn

from dist_net import Net, SameBits, batches, loss_of, same


class ReplicasTest(SameBits):
    def test_replicas(self):
        for how in ("bucketed", "per parameter", "flat"):
            for checkpoints in (None, False, True):
                with self.subTest(how, checkpoints=checkpoints):

                    def make(comm, device, how=how, checkpoints=checkpoints):
                        model = hd.DistributedDataParallel(Net(checkpoints).to(device), comm, how, bucket_mb=0.001)
                        return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.module.state_dict

                    self.same_bits(make, also=lambda step, rank: rank == 1 and step > 0)

    def test_a_rank_without_gradients_in_a_dataclass(self):
        """Its backward pass reaches no parameter, and it meets the others all the same."""

        @dataclasses.dataclass
        class Made:
            loss: torch.Tensor
            name: str = "a loss"

        class Gate(nn.Linear):
            def forward(self, x, used):
                return Made((super().forward(x) if used else x).sum())

        def body(comm):
            model = hd.DistributedDataParallel(Gate(3, 2), comm)
            model(torch.ones(4, 3, requires_grad=True), comm.rank == 0).loss.backward()
            return model.module.bias.grad.tolist()

        self.assertEqual(ranks_do(2, body), [[2.0, 2.0]] * 2)

    def test_replicas_that_add_before_they_meet(self):
        def body(comm):
            torch.manual_seed(0)
            model = hd.DistributedDataParallel(Net(), comm)
            tokens = batches(0, 6)
            with model.no_sync():
                loss_of(model, tokens[2 * comm.rank], False).backward()
            loss_of(model, tokens[2 * comm.rank + 1], False).backward()
            got = {n: p.grad for n, p in model.module.named_parameters() if p.grad is not None}
            sums = []
            for r in range(3):
                twin = copy.deepcopy(plain)
                for i in range(2):
                    loss_of(twin, tokens[2 * r + i], False).backward()
                sums.append({n: p.grad for n, p in twin.named_parameters() if p.grad is not None})
            return "right" if not same(got, {n: ((sums[0][n] + sums[1][n]) + sums[2][n]) / 3 for n in sums[0]}) else "differ"

        torch.manual_seed(0)
        plain = Net()
        self.assertEqual(ranks_do(3, body), ["right"] * 3)

    def test_sharded_optimizer(self):
        def make(comm, device):
            model = hd.DistributedDataParallel(Net().to(device), comm)
            several = list(model.module.parameters())
            optimizer = hd.ShardedOptimizer(several[:3], torch.optim.AdamW, comm, lr=1e-2)
            optimizer.add_param_group({"params": iter(several[3:])})
            return model, optimizer, model.module.state_dict

        self.same_bits(make)

        def body(comm):
            torch.manual_seed(0)
            net = Net()
            optimizer = hd.ShardedOptimizer(net.parameters(), torch.optim.AdamW, comm, lr=0.1)
            rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
            loss_of(net, batches(0, 3)[0], True).backward()
            optimizer.step()
            rate.step()
            before = copy.deepcopy(net.state_dict())
            net.zero_grad()
            loss_of(net, batches(1, 3)[0], True).backward()
            optimizer.step()
            state = optimizer.state_dict()
            optimizer.load_state_dict(state)
            kept = sum(t.numel() for one in state["state"].values() for t in one.values() if t.dim())
            return same(net.state_dict(), before), kept

        said = ranks_do(3, body)
        learned = 2 * sum(p.numel() for name, p in Net().named_parameters() if name != "up.bias" and not name.startswith("never"))
        self.assertEqual([s[0] for s in said], [[], [], []], "a rate of 0 changes nothing but what decays")
        self.assertEqual(sum(s[1] for s in said), learned)
        self.assertLess(max(s[1] for s in said), 0.6 * learned)

    def test_what_is_refused(self):
        with hd.join() as comm:
            for wrong in (lambda: hd.DistributedDataParallel(Net(), comm, "all"), lambda: hd.DistributedDataParallel(Net(), comm, bucket_mb=0)):
                with self.assertRaises(ValueError):
                    wrong()
            for copied in (copy.deepcopy, pickle.dumps):  # its hooks would stay behind, and the copy would never meet the ranks
                with self.assertRaisesRegex(TypeError, "a Comm cannot be copied or pickled: copy or save the module that was wrapped"):
                    copied(hd.DistributedDataParallel(Net(), comm))


if __name__ == "__main__":
    unittest.main()
