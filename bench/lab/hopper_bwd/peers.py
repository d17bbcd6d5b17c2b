"""Times Headroom's attention backward and cuDNN's (through PyTorch) in turn on one card: 16 384 tokens, width 2048, bf16.

usage: peers.py LIBRARY [--json FILE] [--dims 64,128] [--lens 512,...]
Variant 0 sums dQ in any order, 1 in a fixed one (at 256 they are the same). Prints milliseconds, TFLOP/s and the ratio cuDNN / ours per cell; beside it the ratio to FlashAttention-3 by the recorded table FA3 : cuDNN, if given.
"""
import argparse, csv, ctypes, json, statistics, sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
import torch.nn.functional as F

arguments = argparse.ArgumentParser()
arguments.add_argument("library")
arguments.add_argument("--json")
arguments.add_argument("--table", help="csv with fa3_bwd_ms and cudnn_bwd_ms of another run, to place FlashAttention-3")
arguments.add_argument("--dims", default="64,128,256")
arguments.add_argument("--lens", default="512,1024,2048,4096,8192,16384")
arguments.add_argument("--variants", default="0,1")
arguments.add_argument("--rounds", type=int, default=5)
a = arguments.parse_args()

run = ctypes.CDLL(a.library).attention_bwd
run.restype = ctypes.c_longlong
run.argtypes = [ctypes.c_int] * 8 + [ctypes.c_void_p] * 11
table = {}
if a.table:
    for r in csv.DictReader(open(a.table)):
        if int(r["batch"]) * int(r["len"]) == 16384 and int(r["heads"]) * int(r["head_dim"]) == 2048:
            table[int(r["head_dim"]), int(r["causal"]), int(r["len"])] = float(r["fa3_bwd_ms"]) / float(r["cudnn_bwd_ms"])

def timed(f):
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); f(); stop.record(); stop.synchronize()
    return start.elapsed_time(stop)

rows, variants = [], [int(v) for v in a.variants.split(",")]
for dim in map(int, a.dims.split(",")):
    for causal in (0, 1):
        for n in map(int, a.lens.split(",")):
            batch, heads = 16384 // n, 2048 // dim
            torch.manual_seed(1)
            q, k, v, dout = (torch.randn(batch, n, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(4))
            leaves = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = F.scaled_dot_product_attention(*leaves, is_causal=bool(causal))
            o = out.detach().transpose(1, 2).contiguous()
            with torch.no_grad():  # log-sum-exp, in slices that fit
                lse = torch.empty(batch, heads, n, device="cuda")
                for b in range(batch):
                    for h in range(heads):
                        for r in range(0, n, 4096):
                            s = (q[b, r:r + 4096, h].float() @ k[b, :, h].float().T) * dim ** -0.5
                            if causal: s.masked_fill_(torch.arange(n, device="cuda")[None] > torch.arange(r, min(n, r + 4096), device="cuda")[:, None], -torch.inf)
                            lse[b, h, r:r + 4096] = s.logsumexp(1)
                            del s
            grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
            call = lambda w, *more: run(w, dim, causal, batch, heads, heads, n, n, *(x.data_ptr() for x in (q, k, v, o, dout, lse, *grads)), *more)
            size = max(call(w, None, None) for w in variants)
            space = torch.empty(size, dtype=torch.uint8, device="cuda")
            ours = lambda w: call(w, space.data_ptr(), torch.cuda.current_stream().cuda_stream)
            theirs = lambda: torch.autograd.grad(out, leaves, dout.transpose(1, 2), retain_graph=True)
            want = [g.transpose(1, 2).float() for g in theirs()]
            errors = []
            for w in variants:
                for g in grads: g.fill_(torch.nan)
                ours(w); torch.cuda.synchronize()
                errors.append(max(float((g.float() - x).norm() / x.norm()) for g, x in zip(grads, want)))
            del want
            times = {w: [] for w in [*variants, "cudnn"]}
            for r in range(a.rounds):
                for w in [*variants, "cudnn"]:
                    for j in range(4):
                        t = timed(theirs if w == "cudnn" else lambda: ours(w))
                        if r and j: times[w].append(t)
            ms = {w: statistics.median(t) for w, t in times.items()}
            flops = 10 * batch * heads * n * n * dim / (2 if causal else 1)
            fa3 = table.get((dim, causal, n))
            cells = "  ".join(f"v{w} {ms[w]:.3f} ms {flops / ms[w] * 1e-9:4.0f} ×{ms['cudnn'] / ms[w]:.2f}" + (f" ×{ms['cudnn'] * min(fa3, 1) / ms[w]:.2f}" if fa3 else "") + f" e {e:.1e}" for w, e in zip(variants, errors))
            print(f"{dim} {'causal' if causal else 'full  '} {n:6d}  cudnn {ms['cudnn']:.3f} ms {flops / ms['cudnn'] * 1e-9:4.0f}  {cells}", flush=True)
            rows.append({"dim": dim, "causal": causal, "len": n, "batch": batch, "heads": heads, "cudnn_bwd_ms": ms["cudnn"], "fa3_over_cudnn_elsewhere": fa3, **{f"variant_{w}_ms": ms[w] for w in variants}, "difference_to_cudnn": errors})
            del q, k, v, o, out, leaves, grads, space, dout
            torch.cuda.empty_cache()
if a.json:
    json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "command": "peers.py " + " ".join(x.rsplit("/", 1)[-1] for x in sys.argv[1:]), "rows": rows}, open(a.json, "w"), indent=1)
