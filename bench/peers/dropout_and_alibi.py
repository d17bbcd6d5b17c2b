"""Attention with dropout beside torch's (FlashAttention-2), and with ALiBi's slopes beside FlexAttention compiled, in turns in one process.

    python bench/peers/dropout_and_alibi.py [--rounds 9]            # one GPU; CSV: ms of a call with all that Python does, medians

PYTHONPATH=python and HEADROOM_LIBRARY=build/release/libheadroom.so, or an installed wheel. `without`: ours without either. `ratio`: the peer's time over ours.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import gpu_headroom.torch as ht

SHAPES = [(16, 16, 512, 64), (8, 12, 1024, 64), (4, 16, 4096, 64), (1, 16, 16384, 64), (8, 12, 1024, 128), (4, 16, 4096, 128), (1, 16, 16384, 128)]
CALLS = 10


def in_turns(calls, rounds):
    """The median ms of each of `calls`, a dict; each round in another order."""
    for call in calls.values():
        for _ in range(3):
            call()
    times = {name: [] for name in calls}
    names = list(calls)
    for at in range(rounds):
        for name in names[at % len(names) :] + names[: at % len(names)]:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            calls[name]()
            begin.record()
            for _ in range(CALLS):
                calls[name]()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / CALLS)
    return {name: statistics.median(ms) for name, ms in times.items()}


def with_torch(q, k, v, causal):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=causal)


def flex_with(slopes, length, causal):
    def fall(score, batch, head, row, key):
        return score - slopes[head] * (row - key).abs()

    def flex(q, k, v):  # a function of its own for each shape: torch.compile gives up on one that it sees in too many
        return flex_attention(q, k, v, score_mod=fall, block_mask=mask)

    mask = create_block_mask(lambda b, h, row, key: row >= key, None, None, length, length, device="cuda") if causal else None
    torch._dynamo.reset()
    return torch.compile(flex, dynamic=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print("what,pass,batch,heads,len,dim,mask,ours_ms,peer_ms,ratio,flash_sm80_ms,without_ms")
    for batch, heads, length, dim in SHAPES:
        for causal in (False, True):
            torch.manual_seed(length + dim)
            q, k, v = (torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
            up = torch.randn_like(q)
            slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)], device="cuda")
            flex = flex_with(slopes, length, causal)
            asked = {"dropout": {"dropout_p": 0.1}, "alibi": {"alibi_slopes": slopes}}
            peers = {"dropout": lambda: with_torch(q, k, v, causal), "alibi": lambda: flex(q, k, v)}
            for what, options in asked.items():
                calls = {
                    "ours": lambda: ht.attention(q, k, v, is_causal=causal, **options),
                    "peer": peers[what],
                    "flash_sm80": lambda: ht.attention(q, k, v, is_causal=causal, variant="flash_sm80", **options),
                    "without": lambda: ht.attention(q, k, v, is_causal=causal),
                }
                for of in ("forward", "both"):
                    made = {name: forward(call) if of == "forward" else both(call, (q, k, v), up) for name, call in calls.items()}
                    ms = in_turns(made, rounds)
                    print(
                        f"{what},{of},{batch},{heads},{length},{dim},{'causal' if causal else 'full'},{ms['ours']:.3f},{ms['peer']:.3f},"
                        f"{ms['peer'] / ms['ours']:.2f},{ms['flash_sm80']:.3f},{ms['without']:.3f}",
                        flush=True,
                    )


def forward(call):
    def run():
        with torch.no_grad():
            return call()

    return run


def both(call, inputs, up):
    return lambda: torch.autograd.grad(call(), inputs, up)


if __name__ == "__main__":
    main()
