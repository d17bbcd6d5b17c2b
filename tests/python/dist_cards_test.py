"""Calls of gpu_headroom.torch.dist from card to card: two ranks with a GPU each, and four with two each. Exit code 77 says: skipped, and why.

Bits are those of the same call on host memory, which dist_collectives_test.py compares with one process.
"""

import os
import signal
import time
import unittest
import uuid

from dist_cards import join, processes_do, ranks_do, torch  # (which skips where there are no cards)

from gpu_headroom import Error

SHAPES = ((), (1,), (3,), (255,), (2, 50001), (5, 7, 1031), (0,), (1000003,))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float64, torch.complex64)
SUMMED = DTYPES[:3]


def values(rank, shape, dtype, seed=0):
    g = torch.Generator().manual_seed(1000 * seed + rank + 1)
    x = torch.randn(shape, generator=g) * 10.0 ** torch.randint(-3, 4, shape, generator=g)
    return (x > 0) if dtype == torch.bool else (x.abs() * 10).to(dtype) if dtype == torch.uint8 else x.to(dtype)


def poison():
    """Memory that the next tensors get is full of NaN."""
    x = torch.full((1 << 22,), float("nan"), device="cuda")
    several = [torch.full((n,), float("nan"), device="cuda") for n in (64, 1024, 100000)]
    del x, several


def laid_out(t):
    """The same values with other strides: turned, every second one, and one element away from a whole piece of memory."""
    yield "whole", t.cuda()
    if t.dim() >= 2:
        yield "turned", t.cuda().transpose(0, -1).contiguous().transpose(0, -1)
    if t.dim() >= 1 and t.numel():
        apart = torch.empty((*t.shape, 2), dtype=t.dtype, device="cuda")[..., 0]
        yield "apart", apart.copy_(t)
        odd = torch.empty(t.numel() + 1, dtype=t.dtype, device="cuda")[1:].view(t.shape)
        yield "odd", odd.copy_(t)


def same(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (t.cpu().reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def everything(comm, dtypes=DTYPES, shapes=SHAPES):
    """Every call on the card against the same call on the host."""
    for dtype in dtypes:
        for shape in shapes:
            t, rows = values(comm.rank, shape, dtype), torch.stack([values(comm.rank, shape, dtype, 1 + r) for r in range(comm.ranks)])
            calls = {"all_gather": (comm.all_gather, t, {}), "exchange": (comm.exchange, rows, {}), "broadcast": (comm.broadcast, t, {"root": comm.ranks - 1})}
            if dtype in SUMMED:
                for how in ("sum", "mean"):
                    calls[f"all_reduce {how}"] = (comm.all_reduce, t, {"reduction": how})
                    calls[f"reduce_scatter {how}"] = (comm.reduce_scatter, rows, {"reduction": how})
            for name, (call, given, more) in calls.items():
                want = call(given.clone(), **more)
                for layout, on_card in laid_out(given):
                    for later in (False, True):
                        mine = on_card if layout == "apart" else on_card.clone(memory_format=torch.preserve_format)
                        before, version = mine.cpu(), mine._version
                        poison()
                        got = call(mine, later=later, **more)
                        got = got.wait() if later else got
                        if not same(got, want):
                            return f"{name} of {dtype} {shape}, {layout}, later {later}: {got.flatten()[:5]} and not {want.flatten()[:5]}"
                        in_place = name.startswith(("broadcast", "all_reduce"))
                        if in_place and (got.data_ptr() != mine.data_ptr() or mine._version == version):
                            return f"{name} is not in place"
                        if not in_place and not same(mine, before):
                            return f"{name} changed what was given"
                        if layout == "apart":
                            on_card.copy_(given)
    return comm.gpus


class CardsTest(unittest.TestCase):
    def test_every_call_has_the_bits_of_the_host(self):
        self.assertEqual(ranks_do(2, everything), ["copies from GPU to GPU"] * 2)

    def test_of_small_pieces(self):
        few = ((3,), (2, 50001), (1000003,))
        said = ranks_do(2, lambda comm: everything(comm, (torch.float32, torch.bfloat16, torch.uint8), few), staging_mb=0.125)
        self.assertEqual(said, ["copies from GPU to GPU"] * 2)

    def test_over_nccl(self):
        said = ranks_do(2, lambda comm: everything(comm, (torch.float32, torch.bfloat16, torch.uint8), ((), (255,), (2, 50001), (0,))), gpus="nccl")
        for one in said:
            self.assertRegex(one, "^NCCL's")

    def test_ranks_that_share_a_card(self):
        few = ((3,), (2, 50001), (1000003,))
        for ranks in (3, 4):
            said = ranks_do(ranks, lambda comm: everything(comm, (torch.float32, torch.bfloat16, torch.uint8), few))
            self.assertEqual(said, ["copies from GPU to GPU"] * ranks)

    def test_calls_that_were_begun_and_streams(self):
        """Hundreds under way, of random sizes, made and used on several streams that are late; the host waits for none of them."""

        def body(comm):
            g = torch.Generator().manual_seed(7)
            streams = [torch.cuda.Stream() for _ in range(3)]
            comm.all_reduce(torch.ones(1, device="cuda"))
            begun, waits = [], []
            for i in range(300):
                n, s, how = (int(torch.randint(hi, (), generator=g)) for hi in (400000 if i % 10 else 6000000, 3, 4))
                given = values(comm.rank, (comm.ranks, n // comm.ranks + 1), torch.float32, i)
                all_ = [values(r, given.shape, torch.float32, i) for r in range(comm.ranks)]
                with torch.cuda.stream(streams[s]):
                    mine = given.cuda(non_blocking=False)
                    torch.cuda._sleep(int(torch.randint(200000, (), generator=torch.Generator().manual_seed(i + comm.rank))))
                    mine.mul_(2)  # late
                    name = ("all_reduce", "reduce_scatter", "all_gather", "exchange")[how]
                    work = getattr(comm, name)(mine, later=True)
                    del mine
                want = {0: sum(2 * a for a in all_), 1: sum(2 * a[comm.rank] for a in all_), 2: torch.stack([2 * a for a in all_]),
                        3: torch.stack([2 * a[comm.rank] for a in all_])}[how]  # fmt: skip
                begun.append((i, name, work, want))
                if len(begun) > 8:
                    i, name, work, want = begun.pop(int(torch.randint(len(begun), (), generator=g)))
                    with torch.cuda.stream(streams[i % 3]):
                        got = work.wait() + 0
                        waits.append((i, name, got, want))
                    del work
                if len(waits) > 20:
                    i, name, got, want = waits.pop(0)
                    streams[i % 3].synchronize()
                    if not same(got, want):
                        return f"call {i}, {name} of {tuple(want.shape)} is wrong"
            return "right"

        self.assertEqual(ranks_do(2, body), ["right"] * 2)

    def test_the_host_does_not_wait_for_the_card(self):
        def body(comm):
            x = torch.ones(1 << 20, device="cuda")
            comm.all_reduce(x, later=True).wait()
            torch.cuda._sleep(1000)
            x.mul_(1)  # kernels are loaded when they are first used, which waits
            torch.cuda.synchronize()
            comm.barrier()
            torch.cuda._sleep(2_000_000_000)  # about a second
            begun = time.monotonic()
            works = [comm.all_reduce(x, later=True) for _ in range(10)]
            [w.wait() for w in works]
            x.mul_(1)
            queued = time.monotonic() - begun
            was_busy = not works[-1].is_completed()
            torch.cuda.synchronize()
            waited = time.monotonic() - begun
            return (queued < 0.25 * waited and was_busy) or (queued, waited, was_busy), waited > 0.3, x[-1].item()

        self.assertEqual(ranks_do(2, body), [(True, True, 2.0**11)] * 2)

    def test_a_call_that_is_begun_waits_for_no_rank(self):
        def body(comm):
            x = torch.full((1 << 20,), 1.0 + comm.rank, device="cuda")
            comm.all_reduce(x, later=True).wait()  # the GPUs join
            comm.barrier()
            if comm.rank:
                time.sleep(1)
            begun = time.monotonic()
            works = [comm.all_reduce(x, "mean", later=True) for _ in range(100)]
            took, made = time.monotonic() - begun, works[0].is_completed()
            [w.wait() for w in works]
            waited = time.monotonic() - begun
            return comm.rank or (took < 0.8 and not made and waited > 0.8) or (took, made, waited), x[-1].item()

        self.assertEqual(ranks_do(2, body), [(True, 3.0), (1, 3.0)])

    def test_begun_calls_that_differ_are_said_at_wait_and_they_go_on(self):
        def body(comm):
            x = torch.ones(8, device="cuda")
            first, second = comm.all_reduce(x[: 4 + comm.rank], later=True), comm.all_reduce(x, later=True)
            try:
                first.wait()
                return "nothing was said"
            except Error as refused:
                said = str(refused)
            return said, second.wait().tolist()

        want = "ranks ask for different calls: rank 0 for all_reduce of 4 fp32, sum, on a GPU, rank 1 for all_reduce of 5 fp32, sum, on a GPU"
        self.assertEqual(ranks_do(2, body), [(want, [2.0] * 8)] * 2)

    def test_no_memory_is_taken_but_the_staging(self):
        def body(comm):
            x = torch.ones(50_000_000, device="cuda")
            torch.cuda.Stream(priority=-1)  # torch makes all its streams at once
            before = torch.cuda.mem_get_info()[0]
            comm.all_reduce(x)
            torch.cuda.synchronize()
            joined = before - torch.cuda.mem_get_info()[0]
            torch.cuda.reset_peak_memory_stats()
            now = torch.cuda.memory_allocated()
            for later in (False, True):
                one = comm.all_reduce(x, later=later)
                del one
            torch.cuda.synchronize()
            return joined / 2**20, torch.cuda.max_memory_allocated() - now, before - torch.cuda.mem_get_info()[0] - joined

        for joined, more, later in ranks_do(2, body, staging_mb=64):
            print(f"\njoining took {joined:.0f} MiB of a card with 64 MiB of staging")
            self.assertEqual((more, later), (0, 0))
            self.assertLess(joined, 1024)

    def test_a_work_that_was_dropped(self):
        """Its tensors' memory is nobody else's until it is done."""

        def body(comm):
            for i in range(50):
                x = torch.full((3_000_000,), float(comm.rank + i), device="cuda")
                torch.cuda._sleep(1_000_000)
                comm.all_gather(x, later=True)
                del x
                y = torch.full((3_000_000,), -1.0, device="cuda")
                z = torch.full((2, 3_000_000), -2.0, device="cuda")
                w = comm.all_reduce(torch.ones(1, device="cuda"), later=True)
                w.wait()
                if not (y.eq(-1).all() and z.eq(-2).all()):
                    return f"written over in turn {i}"
            return "right"

        self.assertEqual(ranks_do(2, body), ["right"] * 2)

    def test_what_differs_is_said_on_every_rank_and_they_go_on(self):
        def body(comm):
            said, x = [], torch.ones(8, device="cuda")
            for call in (
                lambda: comm.all_reduce(x[: 4 + comm.rank]),
                lambda: comm.all_gather(x.bfloat16() if comm.rank else x),
                lambda: comm.all_reduce(x, later=True).wait() if comm.rank else comm.reduce_scatter(x.view(2, 4)),
                lambda: comm.all_reduce(x.cpu() if comm.rank else x),
                lambda: comm.barrier() if comm.rank else comm.broadcast(x),
                lambda: comm.broadcast(x, comm.rank),
            ):
                try:
                    call()
                    said.append("nothing")
                except Error as refused:
                    said.append(str(refused))
            return said, x.tolist(), comm.all_reduce(torch.ones(2, device="cuda")).tolist()

        first, second = ranks_do(2, body)
        self.assertEqual(first, second)
        self.assertEqual(first[1:], ([1] * 8, [2, 2]))
        self.assertEqual(len({*first[0]}), 6)
        for one in first[0]:
            self.assertRegex(one, "^ranks ask for different calls: rank 0 for .*, rank 1 for ")

    def test_the_first_call_differs(self):
        for other in (lambda comm: comm.all_reduce(torch.ones(2)), lambda comm: comm.barrier()):
            said = ranks_do(2, lambda comm, other=other: other(comm) if comm.rank else comm.all_reduce(torch.ones(2, device="cuda")))
            self.assertEqual(said[0], said[1])
            self.assertIn("rank 0 for joining the GPUs, rank 1 for", said[0])

    def test_a_graph_that_is_captured(self):
        def body(comm):
            x = torch.ones(4, device="cuda")
            comm.all_reduce(x)
            if comm.rank:
                return comm.all_reduce(x).tolist()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                comm.all_reduce(x)

        begun = time.monotonic()
        for said in ranks_do(2, body):
            self.assertIn("a CUDA graph is being captured: ranks meet on the host, which a graph does not record", str(said))
        self.assertLess(time.monotonic() - begun, 60)

    def test_another_card_of_this_rank(self):
        def body(comm):
            comm.all_reduce(torch.ones(1, device="cuda"))
            return comm.all_reduce(torch.ones(1, device=f"cuda:{1 - comm.rank}" if comm.rank else "cuda"))

        for said in ranks_do(2, body):
            self.assertIn("the tensor is on cuda:0, and this rank joined the others with cuda:1", str(said))

    def test_a_dead_rank_ends_the_others(self):
        """Before its call, and after it, when its card had still to send."""
        for when in ("before", "after"):
            with self.subTest(when):
                name = f"local:{uuid.uuid4().hex}"

                def body(rank, when=when, name=name):
                    comm = join(rank, 2, name)
                    x = torch.ones(3_000_000, device="cuda")
                    comm.all_reduce(x)
                    torch.cuda.synchronize()
                    comm.barrier()
                    if rank == 1:
                        if when == "after":
                            torch.cuda._sleep(6_000_000_000)  # three seconds
                            comm.all_reduce(x, later=True)
                        os.kill(os.getpid(), signal.SIGKILL)
                    begun, said = time.monotonic(), []
                    for later in (True, False):
                        try:
                            made = comm.all_reduce(x, later=later)
                            made = made.wait() if later else made
                            torch.cuda.synchronize()
                            said.append("nothing")
                        except Error as refused:
                            said.append(str(refused))
                    begun_to_leave = time.monotonic()
                    comm.close()
                    return said, begun_to_leave - begun, time.monotonic() - begun_to_leave

                (said, died), _ = processes_do(2, body)
                self.assertIsNone(died)
                self.assertIsInstance(said, tuple, said)
                words, took, left = said
                self.assertIn("rank 1 ended", words[-1])
                self.assertTrue(words[0] == "nothing" if when == "after" and "ended" not in words[0] else "rank 1 ended" in words[0], words)
                self.assertLess(took, 10)
                self.assertLess(left, 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
