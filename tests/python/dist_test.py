"""gpu_headroom.torch.dist: ranks that this test forks, against one process with their micro-batches. Exit code 77 says: skipped, and why."""

import copy
import dataclasses
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import unittest
import uuid

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)

from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import gpu_headroom.torch.dist as hd
from gpu_headroom import Error
from gpu_headroom.torch.dist import fully_sharded

torch.set_num_threads(1)  # sums of products have the order of so many threads
_fork = multiprocessing.get_context("fork")


def _rank(rank, body, answers):
    try:
        said = body(rank)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    answers.put((rank, said))
    answers.close()
    answers.join_thread()
    os._exit(0)  # what this test opened is not the child's


def processes_do(ranks, body):
    """What body(rank) returned or raised, by rank; None of a rank that died; and the seconds."""
    answers, begun = _fork.Queue(), time.monotonic()
    started = [_fork.Process(target=_rank, args=(rank, body, answers)) for rank in range(ranks)]
    for p in started:
        p.start()
    for p in started:
        p.join(90)
        if p.is_alive():
            p.kill()
    said = dict.fromkeys(range(ranks))
    while not answers.empty():
        rank, one = answers.get()
        said[rank] = one
    return list(said.values()), time.monotonic() - begun


def ranks_do(ranks, body):
    name = f"local:{uuid.uuid4().hex}"

    def as_rank(rank):
        if torch.cuda.is_available():
            torch.cuda.set_device(rank % torch.cuda.device_count())
        with hd.join(rank, ranks, name) as comm:
            return body(comm)

    return processes_do(ranks, as_rank)[0]


def values(rank, shape, dtype):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(rank + 1)) * 10 ** torch.arange(shape[-1]).remainder(5)).to(dtype)


class Net(nn.Module):
    """Tied weights, a frozen one, a layer that only some inputs use, and one that none does."""

    def __init__(self, checkpoints=None):
        super().__init__()
        self.tokens, self.head = nn.Embedding(30, 12), nn.Linear(12, 30, bias=False)
        self.head.weight = self.tokens.weight
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 40), nn.Linear(40, 12)
        self.up.bias.requires_grad = False
        self.sometimes, self.never = nn.Linear(12, 12), nn.Linear(7, 5)
        self.register_buffer("scale", torch.rand(()))
        self.checkpoints = checkpoints

    def block(self, x):
        return self.down(torch.relu(self.up(self.norm(x)))) * (1 + self.scale)

    def forward(self, tokens, also=False):
        x = self.tokens(tokens)
        x = x + (self.block(x) if self.checkpoints is None else checkpoint(self.block, x, use_reentrant=self.checkpoints))
        return self.head(self.sometimes(x) if also else x)


def devices():
    """Asked in the ranks: a process that has looked for a GPU cannot be forked."""
    return ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def batches(step, ranks, device="cpu"):
    g = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, 30, (ranks, 4, 9), generator=g).to(device)


def loss_of(net, tokens, also):
    return nn.functional.cross_entropy(net(tokens[:, :-1], also).flatten(0, 1).float(), tokens[:, 1:].flatten())


def alone(ranks, device, steps=3, also=lambda step, rank: False, **optimizer):
    """One process with the ranks' micro-batches in order."""
    torch.manual_seed(0)
    net = Net().to(device)
    adam = torch.optim.AdamW(net.parameters(), **optimizer)
    for step in range(steps):
        adam.zero_grad()
        for rank, tokens in enumerate(batches(step, ranks, device)):
            loss_of(net, tokens, also(step, rank)).backward()
        number = torch.tensor(float(ranks), device=device)  # by a tensor: by a number torch multiplies with its inverse on a GPU
        for p in net.parameters():
            p.grad = None if p.grad is None else p.grad / number
        adam.step()
    return net


def same(got, want):
    """The names of what differs in any bit."""
    return [name for name, w in want.items() if got[name].dtype != w.dtype or not torch.equal(got[name], w)]


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


class TrainingTest(unittest.TestCase):
    RANKS = 3

    @classmethod
    def setUpClass(cls):
        import torch._dynamo  # what an optimizer's first step imports, for seconds: once here, not in every rank

    def both(self, make, **more):
        """make(comm, device) → (what to call, its optimizer, what names every whole parameter): the bits of alone()."""
        also = more.get("also", lambda step, rank: False)

        def body(comm):
            for device in devices():
                want = alone(self.RANKS, device, lr=1e-2, **more).state_dict()
                torch.manual_seed(comm.rank)  # rank 0's values count
                call, optimizer, whole = make(comm, device)
                for step in range(3):
                    optimizer.zero_grad()
                    loss_of(call, batches(step, comm.ranks, device)[comm.rank], also(step, comm.rank)).backward()
                    optimizer.step()
                differs = same({**whole()}, {k: v for k, v in want.items() if k != "scale"})
                if differs:
                    return f"differ on {device}: {differs}"
            return "right"

        self.assertEqual(ranks_do(self.RANKS, body), ["right"] * self.RANKS)

    def test_replicas(self):
        for how in ("bucketed", "per parameter", "flat"):
            for checkpoints in (None, False, True):
                with self.subTest(how, checkpoints=checkpoints):

                    def make(comm, device, how=how, checkpoints=checkpoints):
                        model = hd.DistributedDataParallel(Net(checkpoints).to(device), comm, how, bucket_mb=0.001)
                        return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.module.state_dict

                    self.both(make, also=lambda step, rank: rank == 1 and step > 0)

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

        self.both(make)

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

    def test_fully_sharded(self):
        for prefetch in (0, 2):
            for checkpoints in (None, False, True):
                with self.subTest(prefetch=prefetch, checkpoints=checkpoints):

                    def make(comm, device, prefetch=prefetch, checkpoints=checkpoints):
                        model = hd.FullyShardedDataParallel(Net(checkpoints).to(device), comm, prefetch=prefetch)
                        return model, torch.optim.AdamW(model.parameters(), lr=1e-2), model.whole_parameters

                    self.both(make, also=lambda step, rank: step > 0)

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
            for wrong in (lambda: hd.DistributedDataParallel(Net(), comm, "all"), lambda: hd.DistributedDataParallel(Net(), comm, bucket_mb=0),
                          lambda: hd.FullyShardedDataParallel(Net(), comm, units=[nn.Linear(2, 2)]),
                          lambda: hd.join(gpus="all"), lambda: hd.join(staging_mb=0),
                          lambda: hd.FullyShardedDataParallel(nn.MultiheadAttention(8, 2), comm), lambda: hd.FullyShardedDataParallel(Net(), comm, prefetch=-1)):  # fmt: skip
                with self.assertRaises(ValueError):
                    wrong()
            for copied in (copy.deepcopy, pickle.dumps):  # its hooks would stay behind, and the copy would never meet the ranks
                with self.assertRaisesRegex(TypeError, "a Comm cannot be copied or pickled: copy or save the module that was wrapped"):
                    copied(hd.DistributedDataParallel(Net(), comm))


if __name__ == "__main__":
    unittest.main()
