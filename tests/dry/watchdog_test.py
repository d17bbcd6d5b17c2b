"""Memory that PyTorch's thread beside NCCL holds until it looks, every 100 ms on a card: here by the pace of the program, whatever this machine does."""

import unittest

from dry_program import Dry

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


if __name__ == "__main__":
    unittest.main()
