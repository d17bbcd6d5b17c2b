"""Attention's forward with quantise="fp8" beside bf16's on a Hopper card, through gpu_headroom.torch: ms of a call in a CUDA graph of calls.

    HEADROOM_LIBRARY=build/release/libheadroom.so PYTHONPATH=python python3 bench/lab/fp8_attention.py
"""

import statistics

import torch

import gpu_headroom.torch as ht

CALLS, ROUNDS, TOKENS, WIDTH = 20, 9, 16384, 2048


def graph_of(call):
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def ms_of(graph):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / CALLS


def main():
    print("| head dim | mask | key heads | len | bf16, ms | fp8, ms | speed over bf16 |\n|---|---|---|---|---|---|---|")
    for dim in (64, 128, 256):
        heads = WIDTH // dim
        for causal in (False, True):
            for kv_heads in (heads, max(1, heads // 4)):
                for length in (1024, 2048, 4096, 8192, 16384):
                    shape = (TOKENS // length, length)
                    q, k, v = (torch.randn(*shape, n, dim, device="cuda", dtype=torch.bfloat16) for n in (heads, kv_heads, kv_heads))
                    graphs = [
                        graph_of(lambda to=to: ht.attention(q, k, v, is_causal=causal, layout="blhd", quantise=to)) for to in (None, "fp8")
                    ]
                    times = [[ms_of(graph) for graph in graphs] for _ in range(ROUNDS)]  # in turns
                    bf16, fp8 = (statistics.median(column) for column in zip(*times))
                    mask = "causal" if causal else "full"
                    print(f"| {dim} | {mask} | {kv_heads} | {length} | {bf16:.3f} | {fp8:.3f} | {bf16 / fp8:.2f} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
