#!/usr/bin/env python3
"""Runs a program under PyTorch's MemTracker and prints the peak that it counts, in peaks.py's form: a peer to compare with.

    python3 tracked.py PROGRAM.py ARGUMENTS...

MemTracker sees operations and their tensors. Storage that it cannot see (workspaces, temporaries within an operation) is not in its number.
"""
import json
import os
import runpy
import sys


def main():
    program = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.optim.optimizer import register_optimizer_step_post_hook

    torch.cuda.init()
    tracker, steps = MemTracker(), 0

    def count(*_):
        nonlocal steps
        steps += 1

    backward = torch.autograd.backward

    def reset(*args, **kwargs):  # it follows one forward pass of a module, then wants to be told
        backward(*args, **kwargs)
        tracker.reset_mod_stats()

    torch.autograd.backward = reset
    register_optimizer_step_post_hook(count)
    try:
        with tracker:
            runpy.run_path(program, run_name="__main__")
    finally:
        peak = tracker.get_tracker_snapshot("peak").get(torch.device("cuda", torch.cuda.current_device()), {})
        total = max([v for k, v in peak.items() if "otal" in str(k)] or [0])
        print("\nPEAKS " + json.dumps({"peak_allocated_bytes": total, "peak_process_bytes": total, "steps": steps, "versions": {"torch": torch.__version__}}), flush=True)


if __name__ == "__main__":
    main()
