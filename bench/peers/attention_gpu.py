#!/usr/bin/env python3
"""Attention on the GPU: ours and others' (attention_peers.py: PyTorch's backends, FlashAttention, Triton, cuDNN) alternately, on one card, in one run;
one line per cell.

    cmake --build --preset release --target headroom_variants
    python3 bench/peers/attention_gpu.py build/release/libheadroom_variants.so [--set table|between|one-head|batch1|decode|documents] [--pass forward|backward|both] [--peers fa3,cudnn,flash] [--dtype bfloat16|float16|fp8] [--out FILE.csv] [--before LIBRARY] [--cells FILE.csv]

Each candidate is recorded as two CUDA graphs, so that no launch path is in any number: `_ms` is a call among calls (a graph of several),
`_once_ms` one call alone between two events, behind work that fills the queue. The candidates take turns, the median of the rounds counts.
`ratio` is the time of the fastest peer of this run over ours, among calls: above 1 we are ahead. Where FlashAttention-3 is not among the peers, `fa3_ratio`
places it: its recorded time (h200_flash_attention_3.csv: its kernels alone) × this card's factor over ours alone. The factor of a cell is cuDNN
alone here over cuDNN there where that took long (0.7 ms forward, 3 ms backward); below, the record's cuDNN holds PyTorch's launch path and no
card is hot enough to throttle, so it is 1. In fp8 (forward alone) the peers and our `bf16` get the numbers that ours has in 8 bits. `--before` adds the same variant of another commit's headroom_variants, as `before`. Random data; results
are checked against the first peer's, and so are those of the other peers.
"""

import argparse
import csv
import ctypes as c
import pathlib
import random
import statistics

import attention_peers
import torch
from attention_peers import GRADIENTS
from cells import Cells

SHORT = {"forward": "fwd", "backward": "bwd"}  # as columns of the record say it
DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2, torch.float8_e4m3fn: 4}


class Asked(c.Structure):
    _fields_ = [("variant", c.c_char_p), ("dtype", c.c_int32), ("mask", c.c_int32)] + [
        (name, c.c_int64) for name in ("deterministic", "batch", "heads", "kv_heads", "len_q", "len_k", "dim", "documents")
    ] + [("softcap", c.c_double), ("page", c.c_int64), ("pages", c.c_int64)]


class Pointers(c.Structure):
    _fields_ = [(name, c.c_void_p) for name in "q k v o lse d_o dq dk dv workspace saved stream".split()] + [
        ("workspace_bytes", c.c_int64), ("saved_bytes", c.c_int64)
    ] + [(name, c.c_void_p) for name in "cu_q cu_k pages q_scale k_scale v_scale".split()]  # fmt: skip

    def __init__(self, **values):
        if unknown := set(values) - {name for name, _ in self._fields_}:  # ctypes itself would keep them beside the struct, unsent
            raise TypeError(f"the library has no pointer called {', '.join(sorted(unknown))}")
        super().__init__(**values)


def opened(path):
    library = c.CDLL(path)
    library.variant_error.restype = c.c_char_p
    theirs = c.c_int64(), c.c_int64()
    library.variant_struct_bytes(*map(c.byref, theirs))
    if (sizes := [n.value for n in theirs]) != (ours := [c.sizeof(Asked), c.sizeof(Pointers)]):
        raise RuntimeError(f"{path} and this script are of different commits: structs of {sizes} and {ours} bytes")
    return library


class Ours:
    """One variant on one problem. Holds its memory; called, it puts one pass on the current stream."""

    def __init__(self, library, variant, t, causal, backward, tf32=False, deterministic=False, softcap=0.0):
        self.library, self.backward, self.t = library, backward, t
        batch, len_q, heads, dim = t["q"].shape
        dtype = 3 if tf32 else DTYPES[t["q"].dtype]
        documents = t["cu_q"].shape[1] - 1 if "cu_q" in t else 0
        pages, len_k = (t["k"].shape[0], t["pages"].shape[1] * t["k"].shape[1]) if "pages" in t else (0, t["k"].shape[1])
        self.asked = Asked(
            variant.encode(), dtype, int(causal), int(deterministic), batch, heads, t["k"].shape[2], len_q, len_k, dim, documents, softcap,
            t["k"].shape[1] if pages else 0, pages,
        )  # fmt: skip
        workspace, saved = c.c_int64(), c.c_int64()
        self.call(library.variant_needs, c.byref(workspace), c.byref(saved))
        self.memory = [torch.empty(n.value + 256, dtype=torch.uint8, device="cuda") for n in (workspace, saved)]
        self.pointers = Pointers(
            **{name: x.data_ptr() for name, x in t.items()}, workspace=self.memory[0].data_ptr(), saved=self.memory[1].data_ptr(),
            workspace_bytes=workspace.value, saved_bytes=saved.value,
        )  # fmt: skip

    def call(self, function, *arguments):
        if function(c.byref(self.asked), int(self.backward), *arguments):
            raise RuntimeError(self.library.variant_error().decode())

    def __call__(self):
        self.pointers.stream = torch.cuda.current_stream().cuda_stream
        self.call(self.library.variant_run, c.byref(self.pointers))


def in_fp8(t):
    """Q, K and V in E4M3 with a scale to a head; V in blocks of 16 keys, as src/ops/attention/fp8/fp8_layout.h says."""
    made = dict(t)
    for name in "qkv":
        scale = t[name].float().abs().amax(dim=(1, 3)) / 448
        made[name], made[f"{name}_scale"] = (t[name].float() / scale[:, None, :, None]).to(torch.float8_e4m3fn), scale
    keys = [place // 2 % 2 * 8 + place // 4 * 2 + place % 2 for place in range(16)]
    batch, length, heads, dim = t["v"].shape
    codes = torch.nn.functional.pad(made["v"].view(torch.uint8), (0, 0, 0, 0, 0, -length % 16))
    made["v"] = codes.view(batch, -1, 16, heads, dim)[:, :, keys].permute(0, 3, 1, 4, 2).contiguous()
    return made


def recorded(call, calls):
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):  # autograd runs backward where forward ran
        for _ in range(calls):
            call()
    return graph


def alternate(candidates, rounds):
    """Median milliseconds of a call of each, among calls and alone, taking turns in another order each round (a hot card gives the one behind a
    hungry candidate a lower clock); the first round warms up. Peers that cannot be captured are left out, and why."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay(graph):
        torch.cuda._sleep(400_000)  # while the card waits, all three are queued
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop)

    once, many, why = {"ours": recorded(candidates["ours"], 1)}, {}, {}
    replay(once["ours"])
    calls = 8 if replay(once["ours"]) < 0.5 else 2
    for name, call in candidates.items():
        try:
            once[name], many[name] = recorded(call, 1), recorded(call, calls)
        except RuntimeError as e:
            if not isinstance(call, attention_peers.Peer):
                raise
            why[name] = f"no CUDA graph: {e}".splitlines()[0][:100]
            torch.cuda.synchronize()
    times = {name: ([], []) for name in many}
    for turn in range(rounds + 1):
        for name in random.Random(turn).sample(list(many), len(many)):
            ms = replay(many[name]) / calls, replay(once[name])
            if turn:
                for to, x in zip(times[name], ms):
                    to.append(x)
    return {name: [statistics.median(t) for t in both] for name, both in times.items()}, why


def cells(which):  # batch, heads, kv_heads, len_q, len_k, dim, causal
    if which == "table":  # 16 384 tokens, width 2048
        return [
            (16384 // n, 2048 // d, 2048 // d, n, n, d, causal)
            for d in (64, 128, 256) for causal in (False, True) for n in (512, 1024, 2048, 4096, 8192, 16384)
        ]  # fmt: skip
    if which == "between":  # head dims between 64 and 128: a model of 32 heads of 80, then 16 384 tokens and 32 heads
        return [(4, 32, 32, 1024, 1024, 80, True)] + [
            (16384 // n, 32, 32, n, n, d, causal) for d in (80, 96) for causal in (False, True) for n in (512, 1024, 4096, 16384)
        ]  # fmt: skip
    if which == "batch1":
        return [(1, 16, 16, 16384, 16384, 64, True)]
    if which == "decode":  # one new position, 32 query heads on 8 key heads
        return [(b, 32, 8, 1, n, d, False) for d in (64, 128) for b in (1, 4, 16, 64) for n in (1024, 4096, 8192, 16384, 65536)]
    return [(1, 1, 1, n, n, d, False) for d in (16, 32, 64, 128) for n in (128, 512, 1024, 2048, 4096, 8192, 16384, 65536)]


def beside_decoding(library, t):
    """The same keys and values in pages of 64; the same as a cache that says how much of it is filled; and a copy that moves as many bytes."""
    page = 64
    batch, len_k, kv_heads, dim = t["k"].shape
    paged = t | {name: t[name].view(-1, page, kv_heads, dim) for name in "kv"} | {"o": torch.empty_like(t["o"]), "lse": torch.empty_like(t["lse"])}
    paged["pages"] = torch.arange(batch * len_k // page, dtype=torch.int32, device="cuda").view(batch, -1)
    filled = t | {"o": torch.empty_like(t["o"]), "lse": torch.empty_like(t["lse"])}
    ends = lambda n: torch.tensor([[0, n]] * batch, dtype=torch.int32, device="cuda")  # noqa: E731
    filled |= {"cu_q": ends(1), "cu_k": ends(len_k)}
    copied = torch.empty_like(t["k"])
    return {
        "paged": Ours(library, "flash_decode", paged, False, False),
        "filled": Ours(library, "flash_decode", filled, True, False),
        "sm90": Ours(library, "flash_sm90", t, False, False),
        "copy": lambda: copied.copy_(t["k"]),
    }


def measure(library, before, peers, cell, backward, a):
    batch, heads, kv_heads, len_q, len_k, dim, causal = cell
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=getattr(torch, "bfloat16" if a.dtype == "fp8" else a.dtype))  # noqa: E731
    t = {name: make(batch, len_k, kv_heads, dim) if name in "kv" else make(batch, len_q, heads, dim) for name in "qkvo"}
    t["lse"] = torch.empty(batch, heads, len_q, device="cuda")
    if a.dtype == "fp8":
        eight = in_fp8(t)
        ours = {"ours": Ours(library, a.variant, eight, causal, False), "bf16": Ours(library, "flash_sm90", t, causal, False)}
    else:
        eight, ours = t, {"ours": Ours(library, a.variant, t, causal, False)}
    if backward:
        ours["ours"]()
        t |= {"d_o": torch.randn_like(t["q"])} | {name: torch.empty_like(t[of]) for name, of in GRADIENTS.items()}
        ours = {"ours": Ours(library, a.variant, t, causal, True), "ordered": Ours(library, a.variant, t, causal, True, deterministic=True)}
    if before:
        ours["before"] = Ours(before, a.variant, eight, causal, backward)
    row = dict(zip("dim causal batch heads kv_heads len_q len_k".split(), (dim, int(causal), batch, heads, kv_heads, len_q, len_k)))
    if a.set == "decode":
        ours |= beside_decoding(library, t)
    candidates, errors, right = dict(ours), [], None
    apart = lambda x, y: ((x.float() - y.float()).norm() / y.float().norm()).item()  # noqa: E731
    for name, make_peer in peers.items():
        try:
            candidates[name] = call = make_peer(t, causal, backward)
            tried(name, call)
        except (RuntimeError, ValueError, TypeError, AssertionError) as e:  # it does not serve this
            candidates.pop(name, None)
            row[f"{name}_why"] = (str(e).splitlines() or [type(e).__name__])[0][:100]
            continue
        if hasattr(call, "workspace_bytes"):
            row[f"{name}_workspace_bytes"] = call.workspace_bytes
        if right and call.results:
            row[f"{name}_error"] = f"{max(apart(x, right[r]) for r, x in call.results.items()):.1e}"
        elif call.results:
            right = call.results
            for mine_name, mine in ((n, x) for n, x in ours.items() if isinstance(x, Ours)):
                for result in call.results:
                    mine.t[result].fill_(torch.nan)
                tried(mine_name, mine)
                errors += [apart(mine.t[r], x) for r, x in right.items()]
        call.results = None
    if errors:
        row["error"] = f"{max(errors, key=lambda e: (e != e, e)):.1e}"  # a NaN is the worst of all
    ms, why = alternate(candidates, a.rounds)
    row |= {f"{name}_why": words for name, words in why.items()}
    flops = 4 * batch * heads * len_q * len_k * dim * (2.5 if backward else 1) / (2 if causal else 1)
    best = min((ms[name][0] for name in ms if name not in ours), default=ms["ours"][0])
    for name, (among, once) in ms.items():
        row |= {f"{name}_ms": f"{among:.4f}", f"{name}_once_ms": f"{once:.4f}"}
    if "copy" in ms:
        row["copy_share"] = f"{ms['copy'][0] / ms['ours'][0]:.3f}"
    return row | {"tflops": f"{flops / ms['ours'][0] * 1e-9:.0f}", "ratio": f"{best / ms['ours'][0]:.3f}"}


def document_cells():  # lengths of the documents of one row, heads, kv_heads, dim, softcap
    for dim in (64, 128, 256):
        for lengths in ([2048] * 8, [512] * 32, [37 + 211 * i % 1987 for i in range(16)]):
            yield lengths, 2048 // dim, 2048 // dim, dim, 0.0
        yield [2048] * 8, 2048 // dim, 512 // dim, dim, 0.0
        yield [2048] * 8, 2048 // dim, 2048 // dim, dim, 30.0


def measure_documents(library, cell, backward, a):
    """Causal documents packed into one row, against rows of a batch: the same documents where they are equally long, else as many rows of the
    documents' mean length, weighted by it, as have about as many visible pairs. `ratio` is the dense time for as many pairs over ours, `ordered_ratio` the
    same where both passes sum in a fixed order."""
    lengths, heads, kv_heads, dim, softcap = cell
    total, pairs = sum(lengths), sum(n * (n + 1) // 2 for n in lengths)
    length = round(sum(n * n for n in lengths) / total)
    count = max(1, round(pairs / (length * (length + 1) // 2)))
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=getattr(torch, a.dtype))  # noqa: E731

    def tensors(batch, n):
        t = {name: make(batch, n, kv_heads if name in "kv" else heads, dim) for name in "qkvo"} | {"lse": torch.empty(batch, heads, n, device="cuda")}
        return t | ({"d_o": make(batch, n, heads, dim)} | {name: torch.empty_like(t[of]) for name, of in GRADIENTS.items()} if backward else {})

    packed, dense = tensors(1, total), tensors(count, length)
    ends = torch.tensor([[0] + lengths], device="cuda").cumsum(1).to(torch.int32)
    packed |= {"cu_q": ends, "cu_k": ends}
    given = {"ours": (packed, softcap), "dense": (dense, 0.0)}
    for t, cap in given.values():
        Ours(library, a.variant, t, True, False, softcap=cap)()
    candidates = {name: Ours(library, a.variant, t, True, backward, softcap=cap) for name, (t, cap) in given.items()}
    if backward and not softcap:
        candidates |= {name: Ours(library, a.variant, given[of][0], True, True, deterministic=True) for name, of in (("ordered", "ours"), ("dense_ordered", "dense"))}
    ms, _ = alternate(candidates, a.rounds)
    dense_pairs = count * length * (length + 1) // 2
    row = dict(zip("dim heads kv_heads documents len softcap".split(), (dim, heads, kv_heads, len(lengths), total, softcap)))
    for name, (among, once) in ms.items():
        row |= {f"{name}_ms": f"{among:.4f}", f"{name}_once_ms": f"{once:.4f}"}
    flops = 4 * heads * pairs * dim * (2.5 if backward else 1)
    if "ordered" in ms:
        row["ordered_ratio"] = f"{ms['dense_ordered'][0] / dense_pairs * pairs / ms['ordered'][0]:.3f}"
    return row | {"tflops": f"{flops / ms['ours'][0] * 1e-9:.0f}", "ratio": f"{ms['dense'][0] / dense_pairs * pairs / ms['ours'][0]:.3f}"}


def tried(name, call):
    """A call, and the card's own word on it: an error that comes later names nobody."""
    try:
        call()
        torch.cuda.synchronize()
    except RuntimeError as e:
        raise RuntimeError(f"{name}: {e}") from e


def place_fa3(rows, which):
    """Adds FlashAttention-3's ratio to the rows that the record knows; returns the card's factors."""
    with open(pathlib.Path(__file__).with_name("h200_flash_attention_3.csv")) as file:
        record = {tuple(int(r[k]) for k in ("head_dim", "causal", "batch", "heads", "len")): r for r in csv.DictReader(filter(lambda l: l[0] != "#", file))}
    factors, long = [], {"fwd": 0.7, "bwd": 3.0}[which]
    for row in rows:
        r = record.get(tuple(row[k] for k in ("dim", "causal", "batch", "heads", "len_q")))
        if not r or row["kv_heads"] != row["heads"] or row["len_q"] != row["len_k"] or "cudnn_once_ms" not in row:
            continue
        there, factor = float(r[f"cudnn_{which}_ms"]), 1.0
        if there >= long:
            factor = float(row["cudnn_once_ms"]) / there
            factors.append(factor)
        row["fa3_ratio"] = f"{float(r[f'fa3_{which}_ms']) * factor / float(row['ours_once_ms']):.3f}"
    return factors


def variant_here(asked):
    if asked.dtype == "fp8":
        return "flash_sm90_fp8"
    return "flash_decode" if asked.set == "decode" else "flash_sm90" if torch.cuda.get_device_capability() == (9, 0) else "flash_sm80"


def peers_here(asked, written):
    """Those that are installed; a line says why another is not."""
    here = {}
    for name in filter(None, asked.peers.split(",")):
        try:
            here[name] = attention_peers.maker_of(name)
        except (ImportError, OSError) as e:
            print(f"# {name}: {e}", flush=True)
            written.add("every", attention_peers.title_of(name), None, None, str(e))
    return here


def write_cells(written, asked, which, row, peers):
    """A line for each peer of a row; of documents, for the rows of a batch that they are held against."""
    number = lambda key: float(row[key]) if key in row else None  # noqa: E731
    shape = f"{which} {asked.dtype} dim {row['dim']}"
    if asked.set == "documents":
        name = f"{shape} heads {row['heads']}/{row['kv_heads']} documents {row['documents']} of {row['len']}" + (f" cap {row['softcap']:g}" if row["softcap"] else "")
        written.add(name, "our rows of a batch, for as many pairs", number("ours_ms"), float(row["ratio"]) * float(row["ours_ms"]))
        return
    wrong = lambda key: key in row and not float(row[key]) < 0.03  # noqa: E731 — a wrong result has no speed; an honest bf16 one is at 3e-3
    name = f"{shape} batch {row['batch']} cache {row['len_k']}" if asked.set == "decode" else f"{shape} {'causal' if row['causal'] else 'full'} len {row['len_k']}"
    for peer in peers:
        ours, theirs, why = number("ours_ms"), number(f"{peer}_ms"), row.get(f"{peer}_why", "")
        if wrong("error"):
            ours, why = None, f"ours is wrong: {row['error']} of the result"
        elif wrong(f"{peer}_error"):
            theirs, why = None, f"its result is wrong: {row[f'{peer}_error']} of the first peer's"
        written.add(name, attention_peers.title_of(peer), ours, theirs, why)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("library")
    options.add_argument("--set", default="table", choices=("table", "between", "one-head", "batch1", "decode", "documents"))
    options.add_argument("--pass", default="forward", dest="which", choices=("forward", "backward", "both"))
    options.add_argument("--variant", help="default: flash_decode for decode, else flash_sm90 on Hopper, flash_sm80 elsewhere; in fp8 flash_sm90_fp8")
    options.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "fp8"))
    options.add_argument("--peers", default="cudnn,flash", help=f"in turns with ours, the first also for the errors: {', '.join(attention_peers.NAMES)}")
    options.add_argument("--dims", default="16,32,64,80,96,128,256", help="only these head dims")
    options.add_argument("--lens", help="only these lengths of keys")
    options.add_argument("--masks", default="full,causal", help="only these masks")
    options.add_argument("--rounds", type=int, default=15, help="turns of each candidate")
    options.add_argument("--before", help="libheadroom_variants.so of another commit, timed in the same turns")
    options.add_argument("--out")
    options.add_argument("--cells", help="a file for headroom bench (cells.py)")
    a = options.parse_args()
    passes = ["forward", "backward"] if a.which == "both" else [a.which]
    if a.dtype == "fp8" and ("backward" in passes or a.set in ("documents", "decode")):
        options.error("--dtype fp8 is of --pass forward, and not of documents or decoding")
    if unknown := set(filter(None, a.peers.split(","))) - set(attention_peers.NAMES):
        options.error(f"--peers {','.join(sorted(unknown))}: choose from {', '.join(attention_peers.NAMES)}")
    written = Cells(a.cells)
    a.variant = a.variant or variant_here(a)
    peers = peers_here(a, written) if a.set != "documents" else {}
    library, before = opened(a.library), opened(a.before) if a.before else None
    title = f"# {torch.cuda.get_device_name()} · PyTorch {torch.__version__} · cuDNN {torch.backends.cudnn.version()} · {a.variant} {a.dtype} {a.which} {a.set}"
    print(title)
    rows = []

    def keep(which, row):
        rows.append({"pass": which} | row)
        write_cells(written, a, which, row, peers)
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)

    lens, masks = a.lens and a.lens.split(","), a.masks.split(",")
    with torch.cuda.stream(torch.cuda.Stream()):
        for which in passes:
            for cell in document_cells() if a.set == "documents" else ():
                if str(cell[3]) in a.dims.split(","):
                    keep(which, measure_documents(library, cell, which == "backward", a))
            for cell in cells(a.set) if a.set != "documents" else ():
                if str(cell[5]) in a.dims.split(",") and (not lens or str(cell[4]) in lens) and ("causal" if cell[6] else "full") in masks:
                    keep(which, measure(library, before, peers, cell, which == "backward", a))
                    torch.cuda.empty_cache()

    def summary(name, values):
        return f" · {name}: geometric mean {statistics.geometric_mean(values):.3f}, lowest {min(values):.3f}" if values else ""

    recorded_here = a.set not in ("documents", "decode") and a.dtype != "fp8" and "fa3" not in peers and "H200" in torch.cuda.get_device_name()
    factors = [x for which in passes for x in place_fa3([r for r in rows if r["pass"] == which], SHORT[which])] if recorded_here else []
    title += summary("ratio", [float(row["ratio"]) for row in rows])
    title += summary("fa3_ratio", [float(row["fa3_ratio"]) for row in rows if "fa3_ratio" in row])
    if factors:
        title += f" · card's factor {min(factors):.3f} to {max(factors):.3f}, median {statistics.median(factors):.3f}"
    if "backward" in passes:
        title += summary("free over ordered", [float(row["ours_ms"]) / float(row["ordered_ms"]) for row in rows if "ordered_ms" in row])
    if before:
        title += summary("before over ours", [float(row["before_ms"]) / float(row["ours_ms"]) for row in rows])
    print(title)
    if a.out:
        with open(a.out, "w", newline="") as file:
            file.write(title + "\n")
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
