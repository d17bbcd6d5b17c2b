"""What PyTorch's caching allocator was asked, from its first request on: its own history, without stacks, is turned on as soon as there is a card, and
written into the record at the end. A reader plays it again with segments at other addresses (replay.h)."""
import array
import sys

from . import library

MOST = 1 << 18  # events of a card; of a longer run nothing is written
WHAT = {"alloc": 0, "free_requested": 1, "free_completed": 2, "segment_alloc": 3, "segment_free": 4, "segment_map": 5, "segment_unmap": 5, "oom": None, "snapshot": None}
OTHER = 6
_torch = None
_sent = False


def begin(torch):
    global _torch
    if library.requests is None or not hasattr(torch.cuda.memory, "_record_memory_history"):
        return
    _torch = torch
    torch.cuda._lazy_call(_record)
    library.at_end(send)


def _record():
    try:
        _torch.cuda.memory._record_memory_history("all", context=None, max_entries=MOST)
    except Exception as e:
        library.mark("note", f"requests of PyTorch's allocator are not known: {type(e).__name__}: {e}")


def send():
    """Once: the history of every card."""
    global _sent
    if _sent or _torch is None or not _torch.cuda.is_initialized():
        return
    _sent = True
    try:
        traces = _torch.cuda.memory._snapshot()["device_traces"]
    except Exception as e:  # another allocator keeps no history
        library.mark("note", f"requests of PyTorch's allocator are not known: {type(e).__name__}: {e}")
        return
    little = sys.byteorder == "little"
    for device, trace in enumerate(traces):
        if not trace:
            continue
        streams, words = {}, array.array("Q")
        for event in trace:
            what = WHAT.get(event["action"], OTHER)
            if what is None:
                continue
            stream = streams.setdefault(event.get("stream", 0), len(streams))
            words.extend((event.get("addr", 0), event.get("size", 0), what | stream << 32 if little else what << 32 | stream))
        library.requests(device, words.buffer_info()[0], len(words) // 3, int(len(trace) < MOST))
