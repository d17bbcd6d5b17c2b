#!/usr/bin/env python3
"""Runs a PyTorch program as it is and prints its peaks as one line of JSON: three optimizer steps warm up, five are measured.

    python3 peaks.py PROGRAM.py ARGUMENTS...     or under torchrun: every rank runs it, rank 0 prints, with the peaks of all ranks

The program is not changed: hooks that PyTorch offers for every optimizer mark the steps, and torch.autograd.backward marks the
backward passes. A program that never steps (generation) is measured from its start to its end. On a card the line is the
truth, run dry it is the forecast, so both come from the same calls.
"""
import gzip
import json
import os
import runpy
import sys
import time

WARM_UP, MEASURED = 3, 5
TRACE = os.environ.get("HEADROOM_PEAKS_TRACE")  # a file (gzip) for the allocator's events, to find where two runs part
PACKAGES = "torch transformers accelerate peft trl bitsandbytes liger_kernel torchao diffusers timm lightning pytorch_lightning deepspeed triton datasets".split()


class Peaks:
    def __init__(self, torch):
        self.torch, self.steps, self.begin, self.printed = torch, 0, None, False
        self.allocated, self.reserved, self.phases, self.process = 0, 0, {}, 0

    def close(self, phase):
        """Ends a phase: its peak counts for the phase and for all, and the next phase begins at what is allocated now."""
        if not self.torch.cuda.is_initialized():
            return
        peak = self.torch.cuda.max_memory_allocated()
        self.allocated, self.process = max(self.allocated, peak), max(self.process, peak)
        self.phases[phase] = max(self.phases.get(phase, 0), peak)
        self.reserved = max(self.reserved, self.torch.cuda.max_memory_reserved())
        self.torch.cuda.reset_peak_memory_stats()

    def before_step(self, *_):
        self.close("between")

    def after_step(self, *_):
        self.close("update")
        self.steps += 1
        if self.steps == WARM_UP:
            self.allocated, self.reserved, self.phases = 0, 0, {}
            self.phases["after_step"] = self.torch.cuda.memory_allocated()
            self.torch.cuda.synchronize()
            self.begin = time.perf_counter()
        elif self.steps == WARM_UP + MEASURED:
            self.torch.cuda.synchronize()
            self.say((time.perf_counter() - self.begin) / MEASURED * 1e3)

    def trace(self, path):
        """Every event of the allocator: what, address, bytes, stream."""
        with gzip.open(path, "wt") as f:
            for e in self.torch.cuda.memory._snapshot()["device_traces"][self.torch.cuda.current_device()]:
                f.write(f"{e['action']},{e.get('addr', 0):x},{e['size']},{int(e['stream'] != 0)}\n")

    def say(self, ms=None):
        torch, self.printed = self.torch, True
        free, total = torch.cuda.mem_get_info()
        row = {"peak_allocated_bytes": self.allocated, "peak_reserved_bytes": self.reserved, "peak_process_bytes": self.process}
        row.update({f"{k}_bytes": v for k, v in self.phases.items()})
        row.update(steps=self.steps, ms=ms and round(ms, 3), used_by_device_bytes=total - free, device=torch.cuda.get_device_name(),
                   versions={p: getattr(sys.modules[p], "__version__", "") for p in PACKAGES if p in sys.modules})
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            row["rank"] = torch.distributed.get_rank()
        folder = os.environ.get("HEADROOM_PEAKS_FOLDER")  # each rank's line, where the launcher mixes what ranks print
        if folder:
            with open(os.path.join(folder, f"peaks.{row.get('rank', 0)}.json"), "w") as f:
                json.dump(row, f)
        if TRACE:
            self.trace(TRACE)
        print("\nPEAKS " + json.dumps(row), flush=True)


def main():
    program = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    peaks, backward = Peaks(torch), torch.autograd.backward

    def marked(*args, **kwargs):
        peaks.close("forward")
        backward(*args, **kwargs)
        peaks.close("backward")

    torch.autograd.backward = marked
    if TRACE:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1_000_000)
    register_optimizer_step_pre_hook(peaks.before_step)
    register_optimizer_step_post_hook(peaks.after_step)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        if not peaks.printed and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            peaks.close("end")
            peaks.say()


if __name__ == "__main__":
    main()
