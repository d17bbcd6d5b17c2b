"""Memory that the observer must not move."""

import unittest

from dry_program import Dry, NET


class Memory(Dry):
    def both(self, program):
        with_it, without = (self.dry(NET + program, HEADROOM_DRY_OBSERVE=o, HEADROOM_DRY_STEPS="99")[0] for o in "10")
        self.assertEqual(with_it, without)
        self.assertGreater(int(with_it[0].split()[0]), 10 << 20)

    def test_peaks_are_the_same_with_and_without_the_observer(self):
        for kind in "AdamW(net.parameters())", "AdamW(net.parameters(), fused=True)", "SGD(net.parameters(), lr=0.1, momentum=0.9)":
            self.both(f"o = torch.optim.{kind}\nfor _ in range(3):\n    step(o, autocast='fused' in {kind!r})\n"
                      "print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())\n")

    def test_so_with_checkpointing_and_accumulation(self):
        self.both("from torch.utils.checkpoint import checkpoint\n"
                  "for b in net.blocks:\n    b.forward = (lambda f: lambda x: checkpoint(f, x, use_reentrant=False))(b.forward)\n"
                  "o = torch.optim.AdamW(net.parameters())\nfor _ in range(3):\n    net(ids).sum().backward()\n    step(o)\n"
                  "print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())\n")


if __name__ == "__main__":
    unittest.main()
