"""DTensors through our operators: two ranks on the CPU. Exit code 77 says: skipped, and why."""

import os
import socket
import sys
import unittest

try:
    import torch
    import torch.distributed
    import torch.multiprocessing
    from torch.distributed.tensor.experimental import register_sharding  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def work(rank, ranks, port):
    import gpu_headroom.torch as ht
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    whole = [torch.randn(2, heads, 9, 8, requires_grad=True) for heads in (4, 2, 2)]
    sink = torch.randn(4, requires_grad=True)
    for place, with_ in ((Shard(0), None), (Shard(1), None), (Replicate(), None), (Shard(0), Replicate()), (Shard(1), Shard(0))):
        for t in (*whole, sink):
            t.grad = None
        want = ht.attention(*whole, is_causal=True, sink=None if with_ is None else sink)
        want.sum().backward()
        split = [distribute_tensor(t.detach(), mesh, [place]).requires_grad_() for t in whole]
        their_sink = None if with_ is None else distribute_tensor(sink.detach(), mesh, [with_]).requires_grad_()
        o, lse = ht.attention(*split, is_causal=True, sink=their_sink, return_lse=True)
        assert o.placements == lse.placements == (place,), (o.placements, lse.placements)
        assert torch.allclose(o.full_tensor(), want, atol=1e-6)
        o.sum().backward()
        for got, t in zip(split, whole):
            assert torch.allclose(got.grad.full_tensor(), t.grad, atol=1e-6), place
        if with_ is not None:
            assert torch.allclose(their_sink.grad.full_tensor(), sink.grad, atol=1e-5), place
    cu = torch.tensor([[0, 4, 9], [0, 0, 7]], dtype=torch.int32)  # after the sinks, whose shape is that of slopes of each head
    for place in (Shard(0), Shard(1)):
        for slopes in (torch.rand(4), torch.rand(2, 4), torch.rand(2, 2, 4)):
            asked = dict(is_causal=True, cu_seqlens_q=cu if slopes.dim() == 3 else None)
            for t in whole:
                t.grad = None
            want = ht.attention(*whole, **asked, alibi_slopes=slopes)
            want.sum().backward()
            their, split = distribute_tensor(slopes, mesh, [Replicate()]), [distribute_tensor(t.detach(), mesh, [place]).requires_grad_() for t in whole]
            asked["cu_seqlens_q"] = None if slopes.dim() < 3 else distribute_tensor(cu, mesh, [Replicate()])
            o = ht.attention(*split, **asked, alibi_slopes=their)
            assert o.placements == (place,), o.placements
            assert torch.allclose(o.full_tensor(), want, atol=1e-6), (place, slopes.shape)
            o.sum().backward()
            for got, t in zip(split, whole):
                assert torch.allclose(got.grad.full_tensor(), t.grad, atol=1e-6), (place, slopes.shape)
    try:
        ht.attention(*split, dropout_p=0.5)
        raise AssertionError("dropout of a DTensor was served")
    except ValueError as refused:
        assert "dropout of a DTensor is not served" in str(refused), refused
    torch.distributed.destroy_process_group()


def work_in_two_dimensions(rank, ranks, port):
    """Batch over one dimension of the mesh, heads over the other: two key heads on four ranks."""
    import gpu_headroom.torch as ht
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (2, 2))
    torch.manual_seed(0)
    whole = [torch.randn(2, heads, 9, 8, requires_grad=True) for heads in (4, 2, 2)]
    want = ht.attention(*whole, is_causal=True)
    want.sum().backward()
    for places in ((Shard(0), Shard(1)), (Replicate(), Shard(1)), (Shard(0), Replicate())):
        split = [distribute_tensor(t.detach(), mesh, places).requires_grad_() for t in whole]
        with CommDebugMode() as seen:
            o = ht.attention(*split, is_causal=True)
            o.backward(distribute_tensor(torch.ones_like(want), mesh, places, src_data_rank=None))
        assert seen.get_total_counts() == 0 and o.placements == places, (places, o.placements, seen.get_comm_counts())
        assert torch.allclose(o.full_tensor(), want, atol=1e-6), places
        for got, t in zip(split, whole):
            assert torch.allclose(got.grad.full_tensor(), t.grad, atol=1e-6), places
    torch.distributed.destroy_process_group()


class ShardingTest(unittest.TestCase):
    @staticmethod
    def spawn(function, ranks):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(function, (ranks, port), ranks)

    def test_split_by_batch_and_by_heads(self):
        self.spawn(work, 2)

    def test_a_mesh_of_two_dimensions(self):
        self.spawn(work_in_two_dimensions, 4)


if __name__ == "__main__":
    unittest.main()
