"""Runs a program as it is, on a card or under a forecast, and writes one row when it ends: its name, its return code, PyTorch's peaks, seconds, and the last
line of an error.

    python3 peaks_at_end.py PROGRAM ROW [TRACE]          TRACE gets the allocator's requests, one a line: a letter and bytes (xz)
    torchrun --standalone --nproc-per-node 2 peaks_at_end.py tenth_set/tp_llama.py row.csv          rank 0 writes row.csv.0
    headroom forecast --device h200 --steps 1000 -- python3 peaks_at_end.py fourth_set/edsr.py row.csv
"""
import lzma
import os
import re
import runpy
import sys
import time
import traceback

LETTERS = {"alloc": "a", "free_requested": "f", "free_completed": "c", "segment_alloc": "S", "segment_free": "X", "segment_map": "M",
           "segment_unmap": "U", "oom": "o", "snapshot": "s"}


def ended(program):
    """The program's return code, and the last line of its error."""
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as e:
        return (0 if e.code is None else e.code if isinstance(e.code, int) else 1), ""
    except BaseException:
        traceback.print_exc()
        return 1, traceback.format_exc().strip().splitlines()[-1]
    return 0, ""


def main():
    program, row, *trace = sys.argv[1:]
    if "RANK" in os.environ:  # under a launcher: a row of each rank
        row, trace = f"{row}.{os.environ['RANK']}", [f"{t}.{os.environ['RANK']}" for t in trace]
    with open(program) as f:  # what it sets for PyTorch must be there before PyTorch is imported, here too
        os.environ.update(re.findall(r'^os\.environ\["(PYTORCH\w+)"\] = "([^"]*)"$', f.read(), re.M))
    import torch
    if trace:
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=400000)
    sys.argv = [program]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    start = time.time()
    code, error = ended(program)
    name, error = os.path.basename(program).removesuffix(".py"), error.replace(",", ";").replace('"', "'")[:200]
    peaks = f"{torch.cuda.max_memory_allocated()},{torch.cuda.max_memory_reserved()}"
    with open(row, "w") as f:
        f.write(f"{name},{code},{peaks},{time.time() - start:.1f},{error}\n")
    if trace:
        requests = (f"{LETTERS.get(t['action'], t['action'])} {t.get('size', 0)}" for d in torch.cuda.memory._snapshot()["device_traces"] for t in d)
        with lzma.open(trace[0], "wt", preset=2) as f:
            f.write("\n".join(requests) + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as it is: no thread that a program left is waited for


main()
