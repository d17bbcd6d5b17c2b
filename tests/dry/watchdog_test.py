"""Memory that PyTorch's thread beside NCCL holds until it looks, every 100 ms on a card: here by the pace of the program, whatever this machine does."""

import os
import unittest

from dry_program import LIBRARY, Dry

PROGRAM = """
import sys, tempfile, time, torch
import torch.distributed as dist
dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
one = torch.ones(1, device="cuda")
for step in range(12):
    gradients = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(gradients, async_op=True)
    del gradients
    for _ in range(700):  # about 19 ms, where calls of Python are not counted
        one.add_(1)
    time.sleep(PAUSE)
    print(torch.cuda.memory_allocated() >> 20, flush=True)
dist.destroy_process_group()
print(torch.cuda.memory_allocated() >> 20)
"""

# Of each sum: MiB that are held 20 ms after it by the program's pace, 110 ms after it, and 210. Each turn begins at another place of the 100 ms.
SUMS = """
import ctypes, tempfile, torch
import torch.distributed as dist
dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
pace_ns = ctypes.CDLL(None).headroom_dry_clock_ns
pace_ns.restype = ctypes.c_uint64
one, side = torch.ones(1, device="cuda"), torch.empty(2048, 2048, device="cuda")
product, weight = torch.mm(side, side), torch.ones(1, device="cuda", requires_grad=True)
before = torch.cuda.memory_allocated() >> 20
def held_at(end_ns):
    while pace_ns() < end_ns:
        torch.mm(side, side, out=product)
        torch.cuda.synchronize()
    dist.all_reduce(one, async_op=True)  # what the thread let go of is freed with the next collective
    return (torch.cuda.memory_allocated() >> 20) - before
for turn in range(TURNS):
    gradients = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(gradients, async_op=True)
    begin = pace_ns()
    del gradients
    held = [held_at(begin + 20_000_000)]
    if BACKWARD:
        (weight * 2).sum().backward()
    held += [held_at(begin + 110_000_000), held_at(begin + 210_000_000)]
    print(*held, flush=True)
    held_at(begin + LASTS * 1_000_000)
"""


class Watchdog(Dry):
    def held(self, pause=0.0, **environment):
        lines, marks = self.dry(PROGRAM.replace("PAUSE", str(pause)), **environment)
        return [int(line) for line in lines], [m for m in marks if m[0] == "events"]

    def test_it_looks_once_the_program_has_gone_on_for_100_ms(self):
        mib, _ = self.held()
        self.assertEqual(mib[-1], 0, "it lets go of the last where its group ends")
        steps = mib[:-1]
        self.assertIn(max(steps), (16, 20, 24), steps)  # 4 MiB a step
        self.assertEqual(sum(b <= a for a, b in zip(steps, steps[1:])), 2, steps)

    def test_this_machines_time_changes_nothing(self):
        self.assertEqual(self.held(0.15)[0], self.held()[0])

    def test_early_and_late_looks_are_runs_of_their_own(self):
        early, now, late = (max(self.held(HEADROOM_DRY_EVENTS=when)[0]) for when in ("at once", "", "late"))
        self.assertLess(early, now)
        self.assertLess(now, late)

    def turns(self, turns, lasts_ms, backward=False, **environment):
        program = SUMS.replace("BACKWARD", str(backward)).replace("TURNS", str(turns)).replace("LASTS", str(lasts_ms))
        return [tuple(int(word) for word in line.split()) for line in self.dry(program, **environment)[0]]

    def test_a_sum_is_held_for_50_ms_wherever_the_100_begin(self):
        self.assertEqual(self.turns(8, 313), 8 * [(4, 0, 0)])

    def test_late_looks_come_200_ms_after_a_sum(self):
        self.assertEqual([held[:2] for held in self.turns(8, 525, HEADROOM_DRY_EVENTS="late")], 8 * [(4, 4)])

    def test_late_looks_wait_no_longer_once_a_backward_pass_begins(self):
        library = os.path.abspath(LIBRARY)  # alone: it is told of the pass by the mark that a test's own library prints
        held = self.turns(8, 525, backward=True, HEADROOM_DRY_EVENTS="late", LD_PRELOAD=library)
        self.assertEqual([soon for soon, _, _ in held], 8 * [4], held)
        self.assertIn(0, [later for _, later, _ in held], "a look was due meanwhile")


if __name__ == "__main__":
    unittest.main()
