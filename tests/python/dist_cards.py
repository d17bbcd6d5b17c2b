"""What the tests of gpu_headroom.torch.dist from card to card share: ranks with a GPU each. Where fewer than two GPUs are they skip: exit code 77."""

import sys
import uuid
import warnings

from dist_ranks import hd, processes_do, torch  # (which skips where there is no torch)

CARDS = processes_do(1, lambda rank: torch.cuda.device_count())[0][0]  # asked elsewhere: who has looked for a GPU cannot be forked
if not isinstance(CARDS, int) or CARDS < 2:
    print(f"skipped: two GPUs are needed, and {CARDS} are here")
    sys.exit(77)


def join(rank, ranks, name, **more):
    torch.cuda.set_device(rank % CARDS)
    return hd.join(rank, ranks, name, **more)


def ranks_do(ranks, body, **more):
    name = f"local:{uuid.uuid4().hex}"

    def as_rank(rank):
        warnings.filterwarnings("error", message="gpu_headroom")  # nothing goes through the host
        with join(rank, ranks, name, **more) as comm:
            return body(comm)

    return processes_do(ranks, as_rank)[0]
