"""The record of a program: what its blocks are, and what the allocator was asked."""

import os
import struct
import tempfile
import unittest

from dry_program import Dry, NET, torch


class Record(Dry):
    def recorded(self, program, **environment):
        """The bytes of the record of a program."""
        with tempfile.TemporaryDirectory() as folder:
            self.dry(NET + program, HEADROOM_DRY_FOLDER=folder, **environment)
            (name,) = [n for n in os.listdir(folder) if n.endswith(".dry")]
            with open(os.path.join(folder, name), "rb") as f:
                return f.read()

    def assert_forward_alone(self, program):
        record = self.recorded(program)
        self.assertEqual((b"forward" in record, b"evaluation" in record), (True, False))

    def test_a_compiled_forward_pass_that_makes_a_module_is_one_graph(self):
        """As those of transformers do by `self.layers[:n]`. What the observer notes of a module would break it in two, with other blocks than on a card."""
        lines, _ = self.dry("""
            import torch
            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
                def forward(self, x):
                    for layer in self.layers[:2]:
                        x = layer(x)
                    return x
            model = Model().cuda()
            x = torch.randn(4, 8, device="cuda")
            model(x)
            torch.compile(model, backend="aot_eager")(x).sum().backward()
            from torch._dynamo.utils import counters
            print(counters["stats"]["unique_graphs"], len(counters["graph_break"]))
        """)
        self.assertEqual(lines, ["1 0"])

    def test_a_part_without_gradients_is_forward_and_a_whole_model_evaluation(self):
        part = ("class Part(nn.Module):\n    @torch.no_grad()\n    def forward(self, x):\n        return x * 2\n"
                "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part, self.net = Part(), net\n"
                "    def forward(self, ids):\n        x = self.net(ids)\n        return x + self.part(x)\n"
                "whole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)
        self.assertIn(b"evaluation", self.recorded(part + "with torch.no_grad():\n    whole(ids)\n"))

    def test_a_function_of_its_own_gradient_is_forward(self):
        if not hasattr(torch.autograd.Function.apply, "__func__"):
            self.skipTest("this torch calls a function without a frame of its own: bench/lab/next")
        part = ("class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
                "    @staticmethod\n    def backward(ctx, dy):\n        return dy * 2\n"
                "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = net\n"
                "    def forward(self, ids):\n        return Twice.apply(self.net(ids))\nwhole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)

    def test_what_is_saved_by_hooks_is_forward(self):
        part = ("class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net, self.w = net, nn.Parameter(torch.ones(1000, 64, device='cuda'))\n"
                "    def forward(self, ids):\n        x = self.net(ids)\n        with torch.autograd.graph.save_on_cpu(pin_memory=True):\n"
                "            return x.transpose(0, 1) @ self.w\nwhole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)

    def test_a_module_that_is_being_made_takes_no_names_from_the_others(self):
        half = "class Half(nn.Module):\n    def __init__(self):\n        self.__dict__['word'] = 1\nhalf = Half()\n"
        _, marks = self.dry(NET + half + "o = torch.optim.SGD(net.parameters(), lr=0.1)\nstep(o)\n")
        self.assertIn("blocks.0.up", [m[1] for m in marks if m[0] == "scope"])
        self.assertEqual([m[1] for m in marks if m[0] == "note"], [])

    def test_it_has_what_the_allocator_was_asked(self):
        self.assertGreater(self.blocks_asked("o = torch.optim.AdamW(net.parameters())\nfor _ in range(3):\n    step(o)\n"), 300)

    def test_it_has_that_of_a_program_that_records_a_history_of_its_own(self):
        record, step = "torch.cuda.memory._record_memory_history({})\n", "for _ in range(2):\n    step(o)\n"
        plain = self.blocks_asked("o = torch.optim.AdamW(net.parameters())\n" + 3 * step)
        own = ("o = torch.optim.AdamW(net.parameters())\n" + step + record.format("max_entries=50") + step
               + "assert len(torch.cuda.memory._snapshot()['device_traces'][0]) > 50\n" + record.format("enabled=None") + step)
        self.assertEqual(self.blocks_asked(own), plain)

    def test_an_allocator_that_keeps_no_history_is_said_once(self):
        for name in "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF":
            _, marks = self.dry(NET + "step(torch.optim.SGD(net.parameters(), lr=0.1))\n", **{name: "backend:cudaMallocAsync"})
            notes = [m[1] for m in marks if m[0] == "note"]
            if notes or name == "PYTORCH_CUDA_ALLOC_CONF":  # the other name is new
                self.assertEqual([n[:50] for n in notes], ["the allocator 'cudaMallocAsync' keeps no history o"])

    def test_a_pool_of_its_own_is_a_stream_to_the_reader(self):
        if not hasattr(torch.cuda, "MemPool"):
            self.skipTest("this torch has no MemPool")
        pool = "pool = torch.cuda.MemPool()\nfor _ in range(2):\n    with torch.cuda.use_mem_pool(pool):\n        x = torch.ones(3 << 20, device='cuda')\n    del x\n"
        in_pool = [r for r in self.asked(pool + "y = torch.ones(3 << 20, device='cuda')\n") if r[2] == 0 and r[1] == 12 << 20]
        self.assertEqual([r[3] == in_pool[-1][3] for r in in_pool], [False, False, True])
        self.assertEqual([r[3] >> 31 for r in in_pool], [1, 1, 0], "a pool's own streams are known by a bit")
        before = "x = torch.ones(3 << 20, device='cuda')\ndel x\ntorch.cuda.empty_cache()\n"  # its addresses are the pool's afterwards
        places = [r for r in self.asked(before + pool) if r[2] == 0 and r[1] == 12 << 20]
        self.assertEqual(len({r[0] for r in places}), 1)
        self.assertEqual([r[3] == places[0][3] for r in places], [True, False, False])

    def test_a_long_run_is_whole_and_a_longer_one_says_that_it_is_not(self):
        turns = "for _ in range(90000):\n    torch.empty(300, device='cuda')\n"
        self.assertGreater(len(self.asked(turns)), 1 << 18)
        few = "from headroom_dry import requests\nrequests.MOST = 1000\n"
        _, marks = self.dry(NET + few + turns, HEADROOM_DRY_STEPS="99")
        self.assertEqual([m[1][:46] for m in marks if m[0] == "note"], ["more than 1000 requests of PyTorch's allocator"])

    def blocks_asked(self, program):
        """How many blocks the record says were taken: each where none is, from the first on."""
        requests = self.asked(program)
        taken, live = 0, set()
        self.assertEqual(requests[0][2], 3, "the first segment")
        for address, size, what, stream in requests:
            if what == 0:
                taken += 1
                self.assertNotIn(address, live)
                live.add(address)
            elif what == 2:
                live.remove(address)
        return taken

    def asked(self, program):
        """(address, bytes, what, stream) of each request in the record."""
        record = self.recorded(program, HEADROOM_DRY_STEPS="99")
        requests, at = [], struct.unpack_from("I", record, 12)[0]
        while at + 16 <= len(record):
            kind, words = struct.unpack_from("HH", record, at)
            if kind == 0:
                break
            if kind == 18:
                device, count, whole = struct.unpack_from("III", record, at + 16)
                self.assertEqual((device, whole), (0, 1))
                requests += [struct.unpack_from("QQII", record, at + 32 + 24 * i) for i in range(count)]
            at += 8 * words
        return requests


if __name__ == "__main__":
    unittest.main()
