"""What plans cuDNN lists for a convolution, and their workspaces, as PyTorch's cudnn.benchmark asks for them; nothing is executed.

    python3 listed.py OUT --seconds 60 --workers 8                     on a card: OUT.csv.gz
    python3 listed.py OUT --workers 2 --described card.json            without one, for the card that cudnn_card described
"""
import argparse
import ctypes
import csv
import gzip
import os
import time

import processes
import shapes as draws

I64, I32, VP, F = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_float
KINDS = {"fp32": (0, 0), "strict": (0, 0), "fp16": (2, 0), "bf16": (9, 0)}  # cuDNN's type of data, and of the sum


class Cudnn:
    def __init__(self, lib, described=None):
        self.c, self.live, self.handle, self.card = lib, [], None, None
        if described:
            self.card = self.make(38)
            text = described.encode()
            assert self.c.cudnnBackendSetAttribute(self.card, 2702, 24, I64(len(text)), text) == 0
            assert self.finish(self.card) == 0
            self.live.clear()
        else:
            self.handle = VP()
            r = self.c.cudnnCreate(ctypes.byref(self.handle))
            assert r == 0, f"cudnnCreate {r}"

    def make(self, kind):
        d = VP()
        r = self.c.cudnnBackendCreateDescriptor(kind, ctypes.byref(d))
        assert r == 0, (kind, r)
        self.live.append(d)
        return d

    def set(self, d, attribute, kind, values, of):
        return self.c.cudnnBackendSetAttribute(d, attribute, kind, I64(len(values)), (of * len(values))(*values))

    def put(self, *a):
        r = self.set(*a)
        assert r == 0, (a[1], r)

    def part(self, d, attribute, part):
        self.put(d, attribute, 15, [part.value], VP)

    def get(self, d, attribute, kind, of, room=1):
        to, count = (of * room)(), I64()
        r = self.c.cudnnBackendGetAttribute(d, attribute, kind, I64(room), ctypes.byref(count), to)
        return list(to)[:max(0, min(room, count.value))] if r == 0 else []

    def finish(self, d):
        return self.c.cudnnBackendFinalize(d)

    def on_card(self, d, attribute):
        if self.card:
            self.set(d, attribute, 15, [self.card.value], VP)

    def clear(self):
        while self.live:
            self.c.cudnnBackendDestroyDescriptor(self.live.pop())

    def tensor(self, name, dims, last, kind):
        d, n = self.make(17), len(dims)
        order = [1, *range(n - 1, 1, -1), 0] if last else range(n - 1, -1, -1)
        strides, s = [1] * n, 1
        for i in order:
            strides[i], s = s, s * dims[i]
        self.put(d, 901, 1, [kind], I32)
        self.put(d, 902, 3, dims, I64)
        self.put(d, 903, 3, strides, I64)
        self.put(d, 906, 3, [ord(name)], I64)
        self.put(d, 900, 3, [16], I64)
        assert self.finish(d) == 0
        return d

    def graph(self, which, s):
        kind, layout, batch, c, k, f, st, p, dil, g, n = s
        f, st, p, dil, n = map(list, (f, st, p, dil, n))
        if len(n) == 1:  # as PyTorch has it
            f, st, p, dil, n = [1, *f], [1, *st], [0, *p], [1, *dil], [1, *n]
        data, summed = KINDS[kind]
        out = [(m + 2 * q - e * (h - 1) - 1) // t + 1 for m, q, h, t, e in zip(n, p, f, st, dil)]
        last = layout == "last"
        x, w, y = (self.tensor(a, d, last, data) for a, d in (("x", [batch, c, *n]), ("w", [k, c // g, *f]), ("y", [batch, k, *out])))
        how = self.make(1)
        self.put(how, 100, 1, [summed], I32)
        self.put(how, 101, 7, [1], I32)
        self.put(how, 106, 3, [len(n)], I64)
        for a, v in ((102, dil), (103, st), (104, p), (105, p)):
            self.put(how, a, 3, v, I64)
        assert self.finish(how) == 0
        op = self.make({"forward": 10, "data": 12, "weight": 11}[which])
        first = {"forward": 700, "data": 706, "weight": 712}[which]
        self.put(op, first, 4, [1.0], F)
        self.put(op, first + 1, 4, [0.0], F)
        self.part(op, first + 2, how)
        for i, t in enumerate((w, x, y)):
            self.part(op, first + 3 + i, t)
        assert self.finish(op) == 0
        graph = self.make(15)
        self.part(graph, 801, op)
        if self.handle:
            self.set(graph, 800, 0, [self.handle.value], VP)
        assert self.finish(graph) == 0
        return graph

    def plan(self, config):
        e = self.make(2)
        to, count = (VP * 1)(e.value), I64()
        self.c.cudnnBackendGetAttribute(config, 300, 15, I64(1), ctypes.byref(count), to)
        index = (self.get(e, 1301, 3, I64) or [-1])[0]
        notes = "".join(chr(97 + v) for v in self.get(e, 1303, 11, I32, 16))
        slow = 0 in self.get(e, 1305, 19, I32, 16)  # compiled when it is made
        knobs = [self.make(7) for _ in range(32)]
        to = (VP * 32)(*[q.value for q in knobs])
        self.c.cudnnBackendGetAttribute(config, 302, 15, I64(32), ctypes.byref(count), to)
        text = "".join(f"k{self.get(q, 600, 9, I32)[0]}={self.get(q, 601, 3, I64)[0]}" for q in knobs[:max(0, count.value)])
        said = (self.get(config, 303, 3, I64) or [-1])[0]
        if slow:
            return f"{index}n{notes}r{text},{said},-1"
        made = self.make(5)
        if self.handle:
            self.put(made, 400, 0, [self.handle.value], VP)
        self.part(made, 401, config)
        self.on_card(made, 407)
        r = self.finish(made)
        return f"{index}n{notes}{text},{(self.get(made, 402, 3, I64) or [said])[0]},{r}"

    def listed(self, graph, mode):
        h = self.make(4)
        self.part(h, 201, graph)
        self.put(h, 200, 8, [mode], I32)
        self.on_card(h, 204)
        if self.finish(h):
            return []
        count = I64()
        self.c.cudnnBackendGetAttribute(h, 202, 15, I64(0), ctypes.byref(count), None)
        configs = [self.make(3) for _ in range(count.value)]
        to = (VP * len(configs))(*[d.value for d in configs])
        self.c.cudnnBackendGetAttribute(h, 202, 15, I64(len(configs)), ctypes.byref(count), to)
        return configs[:count.value]


def text(s):
    return " ".join("x".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in s)


def work(a, which, todo, until):
    import torch
    torch.backends.cudnn.version()
    if not a.described:
        torch.zeros(1, device="cuda")
    c = Cudnn(ctypes.CDLL("libcudnn.so.9"), open(a.described).read() if a.described else None)
    with gzip.open(f"{a.out}.{which}.part", "wt", newline="", compresslevel=3) as f:
        out = csv.writer(f)
        for s in todo:
            if time.time() > until:
                break
            for name in ("forward", "data", "weight"):
                try:
                    graph = c.graph(name, s)
                    lists = ["|".join(c.plan(d) for d in c.listed(graph, mode)) for mode in (0, 2)]
                    out.writerow([text(s), name, *lists, ""])
                except Exception as e:
                    out.writerow([text(s), name, "", "", repr(e)[:100]])
                c.clear()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--count", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1130)
    p.add_argument("--described", help="a file with a card's description: asks without a card")
    a = p.parse_args()
    until = time.time() + a.seconds
    todo = draws.shapes(a.first + a.count, a.seed)[a.first:]
    processes.run(lambda i: work(a, i, todo[i::a.workers], until), a.workers, until, beyond=15)
    with gzip.open(f"{a.out}.csv.gz", "wt", newline="") as t:
        t.write("shape,pass,instant,fallback,why\r\n")
        for i in range(a.workers):
            part = f"{a.out}.{i}.part"
            if os.path.exists(part):
                try:
                    with gzip.open(part, "rt", newline="") as q:
                        for line in q:
                            t.write(line)
                except EOFError:
                    pass
                os.remove(part)


main()
