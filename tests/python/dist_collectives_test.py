"""Collectives of gpu_headroom.torch.dist between ranks that this test forks: sums, types, what is refused, who joins. Exit code 77 says: skipped."""

import itertools
import os
import signal
import socket
import time
import unittest
import uuid

from dist_ranks import devices, hd, processes_do, ranks_do, torch  # (which skips where there is no torch)
from torch import nn

from gpu_headroom import Error


def values(rank, shape, dtype):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(rank + 1)) * 10 ** torch.arange(shape[-1]).remainder(5)).to(dtype)


class CollectivesTest(unittest.TestCase):
    def all_say(self, said, ranks=3, expected="right"):
        self.assertEqual(said, [expected] * ranks)

    def test_sums_are_in_order_and_rounded_once(self):
        def body(comm):
            for device, dtype in itertools.product(devices(), (torch.float32, torch.bfloat16, torch.float16)):
                for shape in ((5,), (3, 4, 7), (0, 3), (2, 50001)):
                    all_ = [values(r, shape, dtype) for r in range(3)]
                    want = (all_[0].float() + all_[1].float()) + all_[2].float()
                    for how, exact in (("sum", want), ("mean", want / 3)):
                        for later in (False, True):
                            mine = all_[comm.rank].to(device, copy=True)
                            version = mine._version
                            got = comm.all_reduce(mine, how, later=later)
                            got = got.wait() if later else got
                            if not torch.equal(mine.cpu(), exact.to(dtype)) or got.data_ptr() != mine.data_ptr() or mine._version == version:
                                return f"all_reduce {device} {dtype} {shape} {how} {later}"
                    rows = torch.stack([values(10 * comm.rank + r, shape, dtype) for r in range(3)])
                    parts = [values(10 * r + comm.rank, shape, dtype).float() for r in range(3)]
                    if not torch.equal(comm.reduce_scatter(rows.to(device)).cpu(), ((parts[0] + parts[1]) + parts[2]).to(dtype)):
                        return f"reduce_scatter {dtype} {shape}"
            turned = values(comm.rank, (6, 4), torch.float32).t()
            comm.all_reduce(turned)
            one = torch.tensor(float(comm.rank), requires_grad=True)
            comm.all_reduce(one)
            want = (values(0, (6, 4), torch.float32) + values(1, (6, 4), torch.float32)) + values(2, (6, 4), torch.float32)
            return "right" if torch.equal(turned, want.t()) and one.item() == 3 and one.requires_grad else "strides"

        self.all_say(ranks_do(3, body))

    def test_every_type_is_moved(self):
        def body(comm):
            for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.bool, torch.uint8, torch.float64, torch.complex64):
                for shape in ((), (3,), (2, 5), (0,)):
                    mine = (torch.arange(max(1, torch.Size(shape).numel()))[: torch.Size(shape).numel()].reshape(shape) * 3 + comm.rank).to(dtype)
                    of = [mine - comm.rank + r if dtype != torch.bool else (mine.long() * 0 + r).bool() for r in range(3)]
                    mine = of[comm.rank] = of[comm.rank].to(dtype)
                    of = [t.to(dtype) for t in of]
                    whole = comm.all_gather(mine, later=True).wait()
                    if whole.dtype != dtype or not torch.equal(whole, torch.stack(of)):
                        return f"all_gather {dtype} {shape}"
                    if not torch.equal(comm.exchange(torch.stack([mine] * 3)), torch.stack(of)):
                        return f"exchange {dtype} {shape}"
                    if not torch.equal(comm.broadcast(mine.clone(), 1), of[1]):
                        return f"broadcast {dtype} {shape}"
            comm.barrier()
            return "right"

        self.all_say(ranks_do(3, body))

    def test_where_new_tensors_are_made_on_another_device(self):
        def body(comm):
            mine = torch.tensor([1.0 + comm.rank])
            torch.manual_seed(0)
            nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
            with torch.device("meta"):
                gathered = comm.all_gather(mine)
                replica, shared = hd.DistributedDataParallel(nets[0], comm), hd.FullyShardedDataParallel(nets[1], comm)
                optimizer = hd.ShardedOptimizer(replica.parameters(), torch.optim.SGD, comm, lr=1.0)
                before = nets[0].weight.item()
                (replica(mine[None]).sum() + shared(mine[None]).sum()).backward()
                optimizer.step()
                norm = shared.clip_grad_norm_(10.0)
            return gathered.flatten().tolist(), round(before - nets[0].weight.item(), 5), norm.item()

        self.all_say(ranks_do(2, body), 2, ([1.0, 2.0], 1.5, 1.5))

    def test_what_differs_is_said_on_every_rank_and_they_go_on(self):
        def body(comm):
            said = []
            for call in (
                lambda: comm.all_reduce(torch.ones(4 + comm.rank)),
                lambda: comm.all_reduce(torch.ones(4), later=True).wait() if comm.rank else comm.barrier(),
                lambda: comm.all_gather(torch.ones(4, dtype=torch.bfloat16 if comm.rank else torch.float32)),
            ):
                try:
                    call()
                    said.append("nothing")
                except Error as refused:
                    said.append(str(refused))
            return said, comm.all_reduce(torch.ones(2)).tolist()

        first, second = ranks_do(2, body)
        self.assertEqual(first, second)
        self.assertEqual(first[1], [2, 2])
        self.assertEqual(first[0][0], "ranks ask for different calls: rank 0 for all_reduce of 4 fp32, sum, rank 1 for all_reduce of 5 fp32, sum")
        self.assertIn("rank 0 for barrier, rank 1 for all_reduce", first[0][1])
        self.assertIn("all_gather of 4 fp32, rank 1 for all_gather of 4 bf16", first[0][2])

    def test_a_call_that_one_rank_refuses_ends_the_others(self):
        wrong = {
            "sums are of float32, bfloat16 and float16, not of float64": lambda comm: comm.all_reduce(torch.ones(2, dtype=torch.float64)),
            "reduction is 'max': 'sum' or 'mean'": lambda comm: comm.all_reduce(torch.ones(2), "max"),
            "elements of the tensor share memory": lambda comm: comm.all_reduce(torch.ones(1).expand(2)),
            "a list was given": lambda comm: comm.all_reduce([1.0]),
            "root is 2: a whole number from 0 to 1": lambda comm: comm.broadcast(torch.ones(2), 2),
            "its first dimension must be the 2 ranks": lambda comm: comm.reduce_scatter(torch.ones(3)),
            "on meta: a dense one on cpu or cuda": lambda comm: comm.all_gather(torch.ones(3, device="meta")),
        }
        for words, call in wrong.items():
            with self.subTest(words):
                said = ranks_do(2, lambda comm, call=call: call(comm) if comm.rank else comm.all_reduce(torch.ones(2)))
                self.assertIn(words, said[0])
                self.assertIn(words, said[1])

    def test_calls_of_one_size_for_other_things(self):
        """Layers in another order on one rank: the same numbers of elements, but other matrices."""

        def body(comm):
            model = hd.FullyShardedDataParallel(nn.ModuleList([nn.Linear(4, 4) for _ in range(2)]), comm)
            return [layer(torch.ones(2, 4)) for layer in (model.module if comm.rank else model.module[::-1])]

        for one in ranks_do(2, body):
            self.assertRegex(one, r"rank 0 for all_gather of 8 fp32 \(1.weight\), rank 1 for all_gather of 8 fp32 \(0.weight\)")
        said = ranks_do(2, lambda comm: comm.all_reduce(torch.ones(2), what=f"part {comm.rank}"))
        self.assertIn("rank 0 for all_reduce of 2 fp32, sum (part 0), rank 1 for", said[0])
        self.assertEqual(said[0], said[1])

    def test_a_dead_rank_ends_the_others(self):
        name = f"local:{uuid.uuid4().hex}"

        def body(rank):
            comm = hd.join(rank, 3, name)
            comm.all_reduce(torch.ones(2))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            begun = time.monotonic()
            for later in (True, False):
                try:
                    work = comm.all_reduce(torch.ones(2), later=later)
                    return "nothing" if not later else work.wait()
                except Error as refused:
                    said = str(refused)
            return said if time.monotonic() - begun < 10 else "late"

        said, _ = processes_do(3, body)
        self.assertIsNone(said[1])
        for one in (said[0], said[2]):
            self.assertIn("rank 1 ended", one)

    def test_who_joins(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])

        def as_spawned(rank):
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            with hd.join(rank, 2) as comm:
                return comm.all_reduce(torch.ones(1)).item()

        def beside_torchs(rank):
            import torch.distributed

            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
            with hd.join() as comm:
                said = comm.all_reduce(torch.ones(1)).item(), comm.rank
            torch.distributed.destroy_process_group()
            return said

        self.assertEqual(processes_do(2, as_spawned)[0], [2, 2])
        self.assertEqual(processes_do(2, beside_torchs)[0], [(2, 0), (2, 1)])
        with hd.join() as comm:
            self.assertEqual((comm.rank, comm.ranks, comm.all_reduce(torch.ones(1)).item()), (0, 1, 1))
            self.assertIn("rank=0, ranks=1", repr(comm))
        with self.assertRaisesRegex(RuntimeError, "this rank has left"):
            comm.barrier()
        for wrong in ((0, None), (None, 2), (0, 2), (2, 2, "local:x"), (-1, 2, "local:x"), (0.5, 2, "local:x"), (None, None, "local:x"),
                      (0, 1, None, 0), (0, 1, None, "1"), (0, 1, None, float("nan"))):  # fmt: skip
            with self.assertRaises((TypeError, ValueError, Error), msg=wrong):
                hd.join(*wrong)
        for wrong in ({"gpus": "all"}, {"staging_mb": 0}):
            with self.assertRaises(ValueError):
                hd.join(**wrong)


if __name__ == "__main__":
    unittest.main()
