"""Training by gpu_headroom.torch.dist, one rank a card: the bits of one process. Exit code 77 says: skipped, and why."""

import os
import unittest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch.use_deterministic_algorithms asks for it

from dist_cards import hd, ranks_do, torch  # noqa: E402  (which skips where there are no cards)
from torch import nn  # noqa: E402

from dist_net import Net, differs_from_alone  # noqa: E402


class TrainingOnCardsTest(unittest.TestCase):
    def same_bits(self, make):
        self.assertEqual(ranks_do(2, lambda comm: differs_from_alone(comm, "cuda", make) or comm.gpus), ["copies from GPU to GPU"] * 2)

    def test_replicas(self):
        for how in ("bucketed", "per parameter", "flat"):
            with self.subTest(how):

                def make(comm, device, how=how):
                    model = hd.DistributedDataParallel(Net().to(device), comm, how, bucket_mb=0.001)
                    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.module.state_dict

                self.same_bits(make)

    def test_sharded_optimizer(self):
        def make(comm, device):
            model = hd.DistributedDataParallel(Net().to(device), comm)
            return model, hd.ShardedOptimizer(model.parameters(), torch.optim.AdamW, comm, lr=1e-2), model.module.state_dict

        self.same_bits(make)

    def test_fully_sharded(self):
        for prefetch, units in ((0, False), (2, False), (1, True)):
            with self.subTest(prefetch=prefetch, units=units):

                def make(comm, device, prefetch=prefetch, units=units):
                    made = Net(False).to(device)
                    some = [made.norm, made.up, made.down] if units else None
                    model = hd.FullyShardedDataParallel(made, comm, prefetch=prefetch, units=some)
                    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.whole_parameters

                self.same_bits(make)

    def test_compiled_units(self):
        def body(comm):
            class Block(nn.Module):  # torch 2.11 compiles no bare nn.Sequential
                def __init__(self):
                    super().__init__()
                    self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

                def forward(self, x):
                    return self.down(nn.functional.gelu(self.up(x)))

            torch.use_deterministic_algorithms(True)  # else each rank chooses among torch's kernels by times of its own
            torch.manual_seed(0)
            net, twin = (nn.Sequential(*(Block() for _ in range(4))).cuda() for _ in range(2))
            twin.load_state_dict(net.state_dict())
            compiled = []

            def counted(graph, inputs):
                compiled.append(graph)
                return torch._dynamo.lookup_backend("inductor")(graph, inputs)

            for block in (*net, *twin):
                block.compile(backend=counted)
            model = hd.FullyShardedDataParallel(net, comm, units=list(net))
            optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (twin, model)]
            for step in range(4):
                x = torch.randn(2, 32, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
                for optimizer in optimizers:
                    optimizer.zero_grad()
                for one in x:
                    twin(one).square().sum().backward()
                for p in twin.parameters():
                    p.grad /= 2
                model(x[comm.rank]).square().sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
            whole = model.whole_parameters()
            wrong = [n for n, p in twin.named_parameters() if not torch.equal(p, whole[n])]
            return wrong or ("compiled" if compiled else "not compiled")

        self.assertEqual(ranks_do(2, body), ["compiled"] * 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
