#!/usr/bin/env python3
"""What a training step of PyTorch holds beyond eager on one GPU, measured: the peer of `headroom memory model --as pytorch` and
`headroom plan --as pytorch`. The model is pytorch_memory.py's language model, line by line; a setting below changes how its step runs.

    python3 bench/peers/pytorch_steps.py [--out rows.csv] [--beside 6] [--trace FOLDER] SETTING...

A SETTING is words of the form name=value, separated by commas; names and their allowed values are the fields of Setting. Every
setting runs in a process of its own, so the allocator's history is that of one training run. Two steps warm up; then the caches of
compiling are returned to the driver, and three more steps are measured. MB = 2**20 bytes.

--times measures milliseconds of a step too: three windows of steps, each from an idle card to an idle card, the median (column ms).

gpus=N shards over N ranks: with --ranks fake (the default) one process computes rank 0's step, and collectives move nothing;
with --ranks nccl there are N processes on N cards, and driver_mb, what the driver says is in use, contains NCCL's buffers.
--check runs every setting once on the CPU, unmeasured.
"""
import argparse
import contextlib
import csv
import dataclasses
import gc
import io
import multiprocessing
import os
import socket
import statistics
import sys
import time
import traceback

from presets import PRESETS, VOCAB

MB = 2**20
SHAPES = {  # vocabulary, width, ffn, layers, heads, key heads
    **{name: (VOCAB, *shape, shape[-1]) for name, shape in PRESETS.items()},
    "narrow": (10000, 512, 1408, 5, 8, 8), "grouped": (32000, 1536, 4096, 8, 24, 8), "wide": (10000, 4096, 11008, 3, 32, 8)}


@dataclasses.dataclass
class Setting:
    model: str = "small"
    layers: int = 0  # 0: the shape's own
    batch: int = 4
    len: int = 1024
    precision: str = "bf16"  # fp32, bf16
    attention: str = "fused"  # naive, fused
    compile: str = "none"  # none, blocks (each block by itself), model (all of it, with its loss)
    keep: str = "everything"  # everything, input (each block checkpointed), groups:K (and each block within), groups:K:everything
    parameters: str = "whole"  # of adapters and of transformers' models: whole (FP32, with autocast), half (in the precision, without)
    adam: str = "foreach"  # foreach, fused, muon (with fused AdamW); 8bit, lion, lion-8bit (bitsandbytes)
    lora: int = 0  # rank of the adapters of every matrix of the blocks; the other weights are frozen, in the precision
    base: str = "precision"  # of --lora's frozen matrices: precision, 4bit (bitsandbytes' NF4, double quantisation; with FSDP2 stored in the precision)
    accumulate: int = 1  # micro-batches of a step
    shard: str = "none"  # none (DDP when gpus > 1), optimizer (DDP with ZeroRedundancyOptimizer), gradients (FSDP2, gathered weights kept until
    # backward), everything (gathered twice)
    gpus: int = 1


def setting_of(words):
    s = Setting()
    for word in filter(None, words.split(",")):
        name, value = word.split("=")
        setattr(s, name, type(getattr(s, name))(value))
    return s


def step_of(s, device):
    """The program: a function that takes one step and calls mark(name) between its phases."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    import pytorch_memory as eager
    if s.model not in SHAPES:  # one of pytorch_models.py
        return step_of_transformers(s, device)
    vocab, width, ffn, depth, heads, kv_heads = SHAPES[s.model]
    depth = s.layers or depth
    low = torch.bfloat16 if s.precision == "bf16" else torch.float32
    held = low if s.lora else torch.float32

    word, *more = s.keep.split(":")
    group = int(more[0]) if word == "groups" else 1
    each, together = s.keep == "input" or len(more) == 1, word == "groups"  # what is checkpointed

    def again(f, *args):
        return checkpoint(f, *args, use_reentrant=False)

    def packed(n_in, n_out):
        import bitsandbytes as bnb
        storage = low if s.gpus > 1 and s.shard != "none" else torch.uint8
        return bnb.nn.Linear4bit(n_in, n_out, bias=False, compute_dtype=low, quant_type="nf4", compress_statistics=True, quant_storage=storage).to(device)

    class Linear(nn.Module):
        def __init__(self, n_in, n_out, adapt=True):
            super().__init__()
            self.adapted = bool(s.lora) and adapt
            self.packed = packed(n_in, n_out) if self.adapted and s.base == "4bit" else None
            if self.packed is None:
                self.weight = nn.Parameter((torch.randn(n_out, n_in, device=device) * 0.02).to(held), requires_grad=not s.lora)
            if self.adapted:
                of = low if s.parameters == "half" else torch.float32
                self.a = nn.Parameter((torch.randn(s.lora, n_in, device=device) * 0.02).to(of))
                self.b = nn.Parameter(torch.zeros(n_out, s.lora, device=device, dtype=of))

        def forward(self, x):
            y = F.linear(x, self.weight) if self.packed is None else self.packed(x)
            return y + F.linear(F.linear(x, self.a), self.b) * 2.0 if self.adapted else y

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width, device=device, dtype=held), requires_grad=not s.lora)

        forward = eager.Norm.forward

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            d = width // heads
            self.norm1, self.norm2 = Norm(), Norm()
            self.q, self.k, self.v = Linear(width, width), Linear(width, kv_heads * d), Linear(width, kv_heads * d)
            self.o = Linear(width, width)
            self.up, self.gate, self.down = Linear(width, ffn), Linear(width, ffn), Linear(ffn, width)

        def attend(self, x, cos, sin):
            b, n, w = x.shape
            q = self.q(x).view(b, n, heads, -1).transpose(1, 2)
            k, v = (f(x).view(b, n, kv_heads, -1).transpose(1, 2) for f in (self.k, self.v))
            q, k = eager.rope(q, cos, sin), eager.rope(k, cos, sin)
            if kv_heads != heads:
                k, v = k.repeat_interleave(heads // kv_heads, 1), v.repeat_interleave(heads // kv_heads, 1)
            if s.attention == "naive":
                mask = torch.ones(n, n, dtype=torch.bool, device=device).tril()
                o = eager.attention(q, k, v, eager.builtin, mask)
            else:
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(o.transpose(1, 2).reshape(b, n, w))

        def whole(self, x, cos, sin):
            x = x + self.attend(self.norm1(x), cos, sin)
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

        def forward(self, x, cos, sin):  # the checkpoint is within what is compiled and sharded, as in torchtitan
            return again(self.whole, x, cos, sin) if each else self.whole(x, cos, sin)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocab, width, device=device, dtype=held)
            self.embed.weight.requires_grad_(not s.lora)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = Norm(), Linear(width, vocab, adapt=False)
            d = width // heads
            angle = torch.outer(torch.arange(s.len), 10000.0 ** (-torch.arange(0, d, 2) / d)).to(device)
            if s.parameters == "half":
                angle = angle.to(low)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def several(self, begin, x, cos, sin):
            for block in self.blocks[begin:begin + group]:
                x = block(x, cos, sin)
            return x

        def forward(self, tokens, targets=None):
            x = self.embed(tokens)
            for begin in range(0, depth, group):
                if together:
                    x = again(self.several, begin, x, self.cos, self.sin)
                else:
                    x = self.several(begin, x, self.cos, self.sin)
            x = self.head(self.norm(x))
            return x if targets is None else F.cross_entropy(x.view(-1, vocab), targets.view(-1))

    torch.manual_seed(0)
    model = Model()
    blocks = model.blocks
    if s.compile == "blocks":
        for block in model.blocks:
            block.compile()
    if s.gpus > 1 and s.shard in ("gradients", "everything"):
        shard_fully(s, model, model.blocks, low)
    elif s.gpus > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    hidden = [p for p in blocks.parameters() if p.ndim == 2 and p.requires_grad]
    run = torch.compile(model) if s.compile == "model" else model
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = optimizers_of(s, trained, hidden)
    tokens = torch.randint(vocab, (s.batch, s.len + 1), device=device)
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    autocast = s.precision == "bf16" and s.shard in ("none", "optimizer") and s.parameters == "whole"  # FSDP2's policy casts instead

    def step(mark):
        for _ in range(s.accumulate):
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = run(x, y) if s.compile == "model" else F.cross_entropy(run(x).view(-1, vocab), y.view(-1))
            mark("forward")
            (loss / s.accumulate if s.accumulate > 1 else loss).backward()
            mark("backward")
        for optimizer in optimizers:
            optimizer.step()
        mark("update")
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        mark("held")
        return float(loss.detach())

    return step, sum(p.numel() for p in model.parameters())


def shard_fully(s, model, blocks, low):
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=low if s.parameters == "half" else torch.float32)
    for block in blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=s.shard == "everything")
    fully_shard(model, mp_policy=policy)  # the root keeps its weights, as PyTorch chooses


def optimizers_of(s, trained, hidden):
    import torch
    if s.adam == "muon":  # of the hidden matrices; the others have AdamW, as torch's documentation pairs them
        of_hidden = {id(p) for p in hidden}
        return [torch.optim.Muon(hidden, lr=1e-3), torch.optim.AdamW([p for p in trained if id(p) not in of_hidden], lr=1e-4, fused=True)]
    if s.adam in ("8bit", "lion", "lion-8bit"):
        import bitsandbytes
        return [{"8bit": bitsandbytes.optim.AdamW8bit, "lion": bitsandbytes.optim.Lion, "lion-8bit": bitsandbytes.optim.Lion8bit}[s.adam](
            trained, lr=1e-4)]
    how = dict(lr=1e-4, fused=s.adam == "fused", foreach=s.adam == "foreach")
    if s.shard == "optimizer":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return [ZeroRedundancyOptimizer(trained, optimizer_class=torch.optim.AdamW, **how)]
    return [torch.optim.AdamW(trained, **how)]


def step_of_transformers(s, device):
    import torch

    from pytorch_models import model_of
    low = torch.bfloat16 if s.precision == "bf16" else torch.float32
    torch.manual_seed(0)
    model = model_of(s.model, s.attention, device, low if s.parameters == "half" else torch.float32)
    if s.keep == "input":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if s.gpus > 1 and s.shard in ("gradients", "everything"):
        shard_fully(s, model, model.transformer.h if s.model.startswith("gpt2") else model.model.layers, low)
    optimizer, = optimizers_of(s, list(model.parameters()), [])
    x = torch.randint(model.config.vocab_size, (s.batch, s.len), device=device)

    def step(mark):
        for _ in range(s.accumulate):
            with torch.autocast(device, torch.bfloat16, enabled=low != torch.float32 and s.parameters == "whole" and s.shard == "none"):
                loss = model(input_ids=x, labels=x).loss
            mark("forward")
            (loss / s.accumulate if s.accumulate > 1 else loss).backward()
            mark("backward")
        optimizer.step()
        mark("update")
        optimizer.zero_grad(set_to_none=True)
        mark("held")
        return float(loss.detach())

    return step, sum(p.numel() for p in model.parameters())


def ranks_begin(s, rank, port, ranks, device):
    import torch
    import torch.distributed as dist
    if ranks == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=s.gpus)
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", rank=rank, world_size=s.gpus, device_id=torch.device("cuda", rank))


def events_of(snapshot):
    """What the allocator was asked in the last step: +bytes, -bytes, in order, with the innermost lines of Python that asked."""
    out = []
    for e in snapshot["device_traces"][0]:
        if e["action"] not in ("alloc", "free_completed", "segment_alloc"):
            continue
        where = [f"{os.path.basename(f['filename'])}:{f['line']} {f['name']}" for f in e.get("frames", []) if f["filename"].endswith(".py")]
        out.append(f"{'-' if e['action'][0] == 'f' else '+' if e['action'][0] == 'a' else 'segment '}{e['size']} @{e['addr']:x} s{e['stream']} "
                   + " < ".join(where[:4]))
    return "\n".join(out)


def times_of(step, ranks, windows=3, window_s=0.5):
    """Milliseconds of a step: median, least and most of some windows. Each step waits for its loss. Ranks take equally many steps."""
    import torch
    ms, steps = [], 0
    for _ in range(windows + 1):  # the first says how many steps fill a window
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps or 2):
            step(lambda _: None)
        torch.cuda.synchronize()
        ms.append((time.perf_counter() - begin) / (steps or 2) * 1e3)
        steps = steps or (10 if ranks > 1 else int(min(40, max(3, window_s / ms[0] * 1e3))))
    return statistics.median(ms[1:]), min(ms[1:]), max(ms[1:])


def measure(words, rank, port, a, pipe):
    s = setting_of(words)
    row = {**dataclasses.asdict(s), "rank": rank, "status": "ok", "why": ""}
    begin = time.monotonic()
    try:
        import torch
        device = "cpu" if a.check else "cuda"
        if s.gpus > 1:
            ranks_begin(s, rank, port, a.ranks, device)
        quiet = contextlib.redirect_stdout(io.StringIO())
        if a.check:
            with quiet:
                step, row["params"] = step_of(s, device)
                row["loss"] = step(lambda _: None)
        else:
            free, total = torch.cuda.mem_get_info()
            row["context_mb"] = (total - free) / MB
            step, row["params"] = step_of(s, device)
            for _ in range(2):
                step(lambda _: None)
            row["reserved_first_mb"] = torch.cuda.max_memory_reserved() / MB
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            peaks = {}

            def mark(phase):
                if phase == "forward":
                    peaks["before_backward"] = torch.cuda.memory_allocated() / MB
                if phase in ("backward", "held"):
                    peaks["after_backward" if phase == "backward" else phase] = torch.cuda.memory_allocated() / MB
                if phase != "held":
                    peaks[phase + "_peak"] = torch.cuda.max_memory_allocated() / MB

            for _ in range(2):
                torch.cuda.reset_peak_memory_stats()
                row["loss"] = step(mark)
            if a.trace:
                torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
                torch.cuda.reset_peak_memory_stats()
                step(mark)
                os.makedirs(a.trace, exist_ok=True)
                with open(f"{a.trace}/{words.replace(',', '_')}.{rank}.txt", "w") as f:
                    f.write(events_of(torch.cuda.memory._snapshot()))
                torch.cuda.memory._record_memory_history(enabled=None)
            if a.times:
                row["ms"], row["ms_least"], row["ms_most"] = times_of(step, s.gpus)
            row.update(peaks)
            row["reserved_mb"] = torch.cuda.max_memory_reserved() / MB
            free, total = torch.cuda.mem_get_info()
            row["driver_mb"] = (total - free) / MB
            row["torch"] = torch.__version__
            row["device"] = torch.cuda.get_device_name()
    except Exception as e:  # whatever it was, it becomes the row's words
        row.update(status="failed", why=(str(e).splitlines() or [repr(e)])[0][:200])
        print(words, traceback.format_exc()[-1500:], file=sys.stderr, flush=True)
    row["seconds"] = round(time.monotonic() - begin, 1)
    pipe.send(row)


COLUMNS = [f.name for f in dataclasses.fields(Setting)] + [
    "rank", "status", "why", "params", "loss", "context_mb", "before_backward", "forward_peak", "backward_peak", "after_backward",
    "update_peak", "held", "reserved_mb", "reserved_first_mb", "driver_mb", "ms", "ms_least", "ms_most", "torch", "device", "seconds"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("settings", nargs="+")
    p.add_argument("--out")
    p.add_argument("--beside", type=int, default=6, help="settings measured beside one another")
    p.add_argument("--ranks", choices=["fake", "nccl"], default="fake")
    p.add_argument("--trace", help="a folder that gets every allocation of a step")
    p.add_argument("--check", action="store_true")
    p.add_argument("--times", action="store_true", help="milliseconds of a step, too; use --beside 1 with it")
    p.add_argument("--until", type=float, default=1e9, help="seconds after which nothing new begins")
    a = p.parse_args()
    multiprocessing.set_start_method("spawn")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    out = open(a.out, "w") if a.out else sys.stdout
    table = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
    table.writeheader()
    waiting, running, begin = list(a.settings), [], time.monotonic()
    if a.ranks == "nccl":
        a.beside = 1
    while waiting or running:
        while waiting and len(running) < a.beside and time.monotonic() - begin < a.until:
            words = waiting.pop(0)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            n = setting_of(words).gpus if a.ranks == "nccl" else 1
            pipes = []
            for rank in range(n):
                mine, theirs = multiprocessing.Pipe()
                process = multiprocessing.Process(target=measure, args=(words, rank, port, a, theirs))
                process.start()
                theirs.close()
                pipes.append((process, mine))
            running.append((words, pipes))
        if not running:
            break
        for one in list(running):
            words, pipes = one
            if not all(mine.poll(0.02) or not process.is_alive() for process, mine in pipes):
                continue
            for process, mine in pipes:
                try:
                    table.writerow(mine.recv())
                except EOFError:
                    table.writerow({**dataclasses.asdict(setting_of(words)), "status": "failed", "why": "the process ended"})
                out.flush()
                process.terminate()
                process.join()
            running.remove(one)
    for words in waiting:
        table.writerow({**dataclasses.asdict(setting_of(words)), "status": "failed", "why": "no time was left"})


if __name__ == "__main__":
    main()
