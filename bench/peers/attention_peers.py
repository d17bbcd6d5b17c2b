"""Attention of others, as attention_gpu.py times it: a peer is made with a problem's tensors ([batch, len, heads, dim]); called, it puts one pass on
the current stream. What is not installed here says so.

    cudnn, flash, efficient, math   PyTorch's scaled_dot_product_attention by this backend
    flex                            PyTorch's flex_attention, which its compiler writes in Triton
    fa2, fa3, fa4                   FlashAttention: the packages flash_attn, flash_attn_interface, flash_attn.cute
    tlx                             Triton's TLX kernels for Hopper: triton.tlx.ops of the package fbtriton
    cudnn-frontend                  cuDNN's graphs by its own front end: the package nvidia-cudnn-frontend
    cudnn-frontend-ordered          the same; the backward repeats its bits

HEADROOM_TLX names a folder that has tlx_flash_attn.py with TLX's flash_attn, for kernels that were compiled elsewhere. HEADROOM_FA3 says where
FlashAttention-3 is, if Python does not find it: a folder that has flash_attn_interface.py, or a library of C with three calls (random data of its own; head dims 64, 128 and 256 in bf16; equal lengths, no grouped heads):

    void *fa3_new(int batch, int heads, int len, int dim, int causal, int fp8);
    void fa3_run(void *, int backward, void *stream);
    void fa3_free(void *);
"""
import ctypes as c
import importlib
import os
import pathlib
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
PACKAGES = {"fa2": ("FlashAttention-2", "flash_attn"), "fa3": ("FlashAttention-3", "flash_attn_interface"), "fa4": ("FlashAttention-4", "flash_attn.cute")}
GRADIENTS = {"dq": "q", "dk": "k", "dv": "v"}
OTHERS = {
    "flex": "PyTorch's flex_attention (Triton)",
    "tlx": "Triton's TLX",
    "cudnn-frontend": "cuDNN's front end",
    "cudnn-frontend-ordered": "cuDNN's front end, same bits",
}
NAMES = (*BACKENDS, *PACKAGES, *OTHERS)


def title_of(name):
    return PACKAGES[name][0] if name in PACKAGES else OTHERS.get(name, f"PyTorch's {name}")


class Peer:
    """One that autograd knows. After a call, `results` holds what it made, by our names."""

    heads_first = False  # as PyTorch wants them: [batch, heads, len, dim]

    def __init__(self, t, causal, backward):
        self.causal, self.backward = causal, backward
        turned = (lambda x: x.transpose(1, 2)) if self.heads_first else (lambda x: x)
        self.leaves = [turned(t[name]).detach().requires_grad_(backward) for name in "qkv"]
        self.d_o = turned(t["d_o"]) if backward else None
        self.o = self.forward()

    def __call__(self):
        made = torch.autograd.grad(self.o, self.leaves, self.d_o, retain_graph=True) if self.backward else [self.forward()]
        self.results = dict(zip(GRADIENTS if self.backward else "o", (x.transpose(1, 2) if self.heads_first else x for x in made)))

    @property
    def grouped(self):
        return self.leaves[0].shape[1] != self.leaves[1].shape[1]


class Backend(Peer):
    heads_first = True

    def __init__(self, backend, t, causal, backward):
        self.backend = backend
        super().__init__(t, causal, backward)

    def forward(self):
        with sdpa_kernel(self.backend):
            return sdpa(*self.leaves, is_causal=self.causal, enable_gqa=self.grouped)


class Flex(Peer):
    heads_first = True

    def __init__(self, t, causal, backward):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch._dynamo.reset()  # each problem is compiled for its own shape, and none counts against the limit of another
        self.compiled = torch.compile(flex_attention, dynamic=False)
        earlier = lambda b, h, row, key: row >= key  # noqa: E731
        self.mask = create_block_mask(earlier, None, None, t["q"].shape[1], t["k"].shape[1], device=t["q"].device) if causal else None
        super().__init__(t, causal, backward)

    def forward(self):
        return self.compiled(*self.leaves, block_mask=self.mask, enable_gqa=self.grouped)


class Package(Peer):
    def __init__(self, function, t, causal, backward):
        self.function = function
        super().__init__(t, causal, backward)

    def forward(self):
        made = self.function(*self.leaves, causal=self.causal)
        return made[0] if isinstance(made, tuple) else made  # some of their versions add the log-sum-exp


class Tlx(Peer):
    heads_first = True

    def __init__(self, function, t, causal, backward):
        if t["q"].shape != t["k"].shape:
            raise RuntimeError("TLX serves equal lengths and no grouped heads")
        self.function = function
        super().__init__({name: dense(x) for name, x in t.items() if name in ("q", "k", "v", "d_o")}, causal, backward)

    def forward(self):
        return self.function(*self.leaves, causal=self.causal)


def dense(x):
    """The same numbers in the same shape, [batch, len, heads, dim], as they lie where heads are outside positions."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


class Frontend(Peer):
    """cuDNN's graphs of both passes, built by its front end. It knows no autograd."""

    handle = None  # one for the process

    def __init__(self, cudnn, ordered, t, causal, backward):
        if causal and t["q"].shape[1] != t["k"].shape[1]:
            raise RuntimeError("here this peer is causal for equal lengths")
        types = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}
        if t["q"].dtype not in types:
            raise RuntimeError("cuDNN's attention is for bf16 and fp16")
        self.cudnn, self.type, self.backward = cudnn, types[t["q"].dtype], backward
        Frontend.handle = Frontend.handle or cudnn.create_handle()
        shared = {"attn_scale": t["q"].shape[3] ** -0.5, "use_causal_mask": causal}
        given = {name: t[name].detach().transpose(1, 2) for name in "qkv"}
        self.o = torch.empty_like(t["q"])
        made = {"o": self.o.transpose(1, 2)}
        if backward:
            made["stats"] = torch.empty(*given["q"].shape[:3], 1, dtype=torch.float32, device=t["q"].device)
        self.run = self.built("sdpa", given, made, generate_stats=backward, **shared)
        if not backward:
            self.made = {"o": self.o}
            return
        self.run()
        self.made = {name: torch.empty_like(t[of]) for name, of in GRADIENTS.items()}
        given |= {"o": made["o"], "dO": t["d_o"].transpose(1, 2), "stats": made["stats"]}
        turned = {name: x.transpose(1, 2) for name, x in self.made.items()}
        self.run = self.built("sdpa_backward", given, turned, use_deterministic_algorithm=ordered, **shared)

    def built(self, node, given, made, **options):
        """A call that runs this node from the tensors `given` into `made`, which are in the order of its results."""
        cudnn = self.cudnn
        graph = cudnn.pygraph(
            io_data_type=self.type, intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT, handle=self.handle
        )
        described = lambda name, x: {  # noqa: E731
            "dim": list(x.shape), "stride": list(x.stride()), "data_type": cudnn.data_type.FLOAT if name == "stats" else self.type
        }  # fmt: skip
        ports = {name: graph.tensor(name=name, **described(name, x)) for name, x in given.items()}
        bound = {ports[name]: x for name, x in given.items()}
        for port, (name, x) in zip(getattr(graph, node)(**ports, **options), made.items()):
            like = described(name, x)
            port.set_output(True).set_dim(like["dim"]).set_stride(like["stride"]).set_data_type(like["data_type"])
            bound[port] = x
        try:
            graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        except cudnn.cudnnGraphNotSupportedError as e:
            raise RuntimeError(f"cuDNN does not serve this: {e}") from e
        self.workspace_bytes = graph.get_workspace_size()
        workspace = torch.empty(max(self.workspace_bytes, 1), dtype=torch.uint8, device=self.o.device)

        def run():
            cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(bound, workspace, handle=self.handle)

        return run

    def __call__(self):
        self.run()
        self.results = self.made


class Library:
    """FlashAttention-3 behind three calls of C. Its numbers are its own, so it has no results."""

    results = None

    def __init__(self, library, t, causal, backward):
        self.library, self.made, self.backward = library, None, int(backward)
        batch, len_q, heads, dim = t["q"].shape
        if t["k"].shape != t["q"].shape or dim not in (64, 128, 256) or t["q"].dtype != torch.bfloat16:
            raise RuntimeError("this library serves head dims 64, 128 and 256 in bf16, equal lengths, no grouped heads")
        if torch.cuda.get_device_capability() != (9, 0):
            raise RuntimeError("FlashAttention-3 is for Hopper (sm_90)")
        self.made = library.fa3_new(batch, heads, len_q, dim, int(causal), 0)
        library.fa3_run(self.made, 0, torch.cuda.current_stream().cuda_stream)

    def __call__(self):
        self.library.fa3_run(self.made, self.backward, torch.cuda.current_stream().cuda_stream)

    def __del__(self):
        if self.made:
            self.library.fa3_free(self.made)


def opened(path):
    library = c.CDLL(str(path))
    library.fa3_new.restype, library.fa3_new.argtypes = c.c_void_p, [c.c_int] * 6
    library.fa3_run.argtypes, library.fa3_free.argtypes = [c.c_void_p, c.c_int, c.c_void_p], [c.c_void_p]
    return library


def installed(module, name, title, hint):
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise ImportError(f"{title} is not installed: {module} cannot be imported; {hint}") from e


def tlx_function():
    if place := os.environ.get("HEADROOM_TLX"):
        sys.path.insert(0, place)
        return installed("tlx_flash_attn", "flash_attn", "TLX", "HEADROOM_TLX names a folder that has tlx_flash_attn.py")
    return installed("triton.tlx.ops", "flash_attn", "TLX", "fbtriton has it from September 2026 on, and HEADROOM_TLX names no folder of kernels")


def maker_of(name):
    """A function of (tensors, causal, backward) that makes the peer; ImportError or OSError where it is not here."""
    if name in BACKENDS:
        return lambda *problem: Backend(BACKENDS[name], *problem)
    if name == "flex":
        return Flex
    if name == "tlx":
        function = tlx_function()
        return lambda *problem: Tlx(function, *problem)
    if name.startswith("cudnn-frontend"):
        installed("cudnn", "pygraph", "cuDNN's front end", "the package is nvidia-cudnn-frontend")
        return lambda *problem: Frontend(sys.modules["cudnn"], name.endswith("ordered"), *problem)
    title, package = PACKAGES[name]
    place = pathlib.Path(os.environ.get("HEADROOM_FA3", "")) if name == "fa3" and os.environ.get("HEADROOM_FA3") else None
    if place and place.is_file():
        library = opened(place)
        return lambda *problem: Library(library, *problem)
    if place:
        sys.path.insert(0, str(place))
    try:
        function = importlib.import_module(package).flash_attn_func
    except (ImportError, AttributeError) as e:
        where = ", and HEADROOM_FA3 names neither its folder nor a library" if name == "fa3" else ""
        raise ImportError(f"{title} is not installed: {package} cannot be imported{where}") from e
    return lambda *problem: Package(function, *problem)
