"""What PyTorch's caching allocator was asked, from its first request on: its own history, without stacks, is turned on as soon as there is a card, and
written into the record at the end. A reader plays it again with segments at other addresses (replay.h)."""
import array
import bisect
import sys

from . import library

MOST = 1 << 20  # events of a card, each half a KiB of the host's memory when they are read; of a longer run nothing is written
WHAT = {"alloc": 0, "free_requested": 1, "free_completed": 2, "segment_alloc": 3, "segment_free": 4, "segment_map": 5, "segment_unmap": 5, "oom": None, "snapshot": None}
OTHER = 6
OWN_POOL = 1 << 31  # a bit of a stream's number, as in record.h
_torch = None
_sent = False
_run = None  # PyTorch's own _record_memory_history
_asked = {}  # by card: (the numbers of its streams, words of the events so far)
_seen = {}  # by card: how many events of its history are in these words
_whole = True
_told = {}  # of the allocator's settings, what the reader was told


def begin(torch):
    global _torch, _run
    if library.requests is None or not hasattr(torch.cuda.memory, "_record_memory_history"):
        return
    _torch, _run = torch, torch.cuda.memory._record_memory_history
    torch.cuda.memory._record_memory_history = _by_the_program
    torch.cuda._lazy_call(_record)
    library.at_end(send)


def _record():
    global _sent
    other = _torch.cuda.memory.get_allocator_backend()
    if other != "native":
        _sent = True  # there is nothing to send
        return library.mark("note", f"the allocator '{other}' keeps no history of what it was asked, so its requests are not played again at other addresses")
    try:
        _run("all", context=None, max_entries=MOST)
    except Exception as e:
        library.mark("note", f"requests of PyTorch's allocator are not known: {type(e).__name__}: {e}")


def _by_the_program(enabled="all", *args, **kwargs):
    """A program that records a history of its own gets it. It may end it, or begin a shorter one: this one goes on."""
    if _sent or not _torch.cuda.is_initialized():
        return _run(enabled, *args, **kwargs)
    _take()
    if "max_entries" in kwargs:
        kwargs["max_entries"] = max(kwargs["max_entries"], MOST)
    result = _run("all" if enabled == "state" else enabled, *args, **kwargs)
    if enabled is None or enabled is False:
        _record()
    for device, trace in enumerate(_torch.cuda.memory._snapshot()["device_traces"]):  # some calls, and in older versions all, begin an empty history
        _seen[device] = min(len(trace), _seen.get(device, 0))
    return result


def _pools(snapshot):
    """Of what lies in pools of their own (MemPool, CUDA graphs): where each segment begins, and (its end, its pool)."""
    own = sorted((s["address"], s["address"] + s["total_size"], tuple(s.get("segment_pool_id", ()))) for s in snapshot["segments"])
    own = [s for s in own if any(s[2])]
    return [s[0] for s in own], [s[1:] for s in own]


def _pools_of(events, begins, pools):
    """The pool of each event. They are looked at from the last on: before a segment was there, its addresses were another's."""
    begins, pools, of = list(begins), list(pools), []
    for event in reversed(events):
        at = bisect.bisect(begins, event.get("addr", 0)) - 1 if begins else -1
        inside = at >= 0 and event.get("addr", 0) < pools[at][0]
        of.append(pools[at][1] if inside else None)
        if inside and event["action"] == "segment_alloc":
            del begins[at], pools[at]
    return reversed(of)


def _take():
    """What the history has of every card. Only a pool itself takes its blocks again, as only a stream its own: it is a stream to the reader."""
    global _whole
    snapshot = _torch.cuda.memory._snapshot()
    _say_settings(snapshot.get("allocator_settings", {}))
    begins, pools = _pools(snapshot)
    little = sys.byteorder == "little"
    for device, trace in enumerate(snapshot["device_traces"]):
        streams, words = _asked.setdefault(device, ({}, array.array("Q")))
        events = trace[_seen.get(device, 0):]
        for event, pool in zip(events, _pools_of(events, begins, pools)):
            what = WHAT.get(event["action"], OTHER)
            if what is None:
                continue
            stream = streams.setdefault((event.get("stream", 0), pool), len(streams) | (OWN_POOL if pool else 0))
            words.extend((event.get("addr", 0), event.get("size", 0), what | stream << 32 if little else what << 32 | stream))
        _seen[device] = len(trace)
        _whole = _whole and len(trace) < MOST


def _say_settings(settings):
    """Blocks of max_split_size_mb are not split, above garbage_collection_threshold segments go back, and roundup_power2_divisions rounds sizes: the reader
    plays the requests by that."""
    size, share = settings.get("max_split_size", -1), settings.get("garbage_collection_threshold", 0)
    parts = settings.get("roundup_power2_divisions", {})
    rounds = ",".join(str(parts[key]) for key in sorted(parts, key=int)) if any(parts.values()) else ""
    if rounds and _told.get("rounds") != rounds:
        _told["rounds"] = rounds
        library.mark("rounds", rounds)
    if 0 < size < 1 << 62 and _told.get("max split") != size:
        _told["max split"] = size
        library.mark("max split", "", size)
    if share > 0 and _told.get("collects above") != share:
        _told["collects above"] = share
        library.mark("collects above", repr(share))


def send():
    """Once: the history of every card."""
    global _sent
    if _sent or _torch is None or not _torch.cuda.is_initialized():
        return
    _sent = True
    try:
        _take()
    except Exception as e:  # another allocator keeps no history
        library.mark("note", f"requests of PyTorch's allocator are not known: {type(e).__name__}: {e}")
        return
    if not _whole:
        library.mark("note", f"more than {MOST} requests of PyTorch's allocator: they are not played again at other addresses")
    for device, (_, words) in _asked.items():
        if words:
            library.requests(device, words.buffer_info()[0], len(words) // 3, int(_whole))
