"""What the tests of gpu_headroom.torch.dist share: ranks that a test forks. Without torch they skip: exit code 77."""

import multiprocessing
import os
import sys
import time
import uuid

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)

import gpu_headroom.torch.dist as hd

torch.set_num_threads(1)  # sums of products have the order of so many threads
_fork = multiprocessing.get_context("fork")


def _rank(rank, body, answers):
    try:
        said = body(rank)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    answers.put((rank, said))
    answers.close()
    answers.join_thread()
    os._exit(0)  # what this test opened is not the child's


def processes_do(ranks, body):
    """What body(rank) returned or raised, by rank; None of a rank that died; and the seconds."""
    answers, begun = _fork.Queue(), time.monotonic()
    started = [_fork.Process(target=_rank, args=(rank, body, answers)) for rank in range(ranks)]
    for p in started:
        p.start()
    for p in started:
        p.join(90)
        if p.is_alive():
            p.kill()
    said = dict.fromkeys(range(ranks))
    while not answers.empty():
        rank, one = answers.get()
        said[rank] = one
    return list(said.values()), time.monotonic() - begun


def ranks_do(ranks, body):
    name = f"local:{uuid.uuid4().hex}"

    def as_rank(rank):
        if torch.cuda.is_available():
            torch.cuda.set_device(rank % torch.cuda.device_count())
        with hd.join(rank, ranks, name) as comm:
            return body(comm)

    return processes_do(ranks, as_rank)[0]


def devices():
    """Asked in the ranks: a process that has looked for a GPU cannot be forked."""
    return ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def import_what_steps_need():
    """An optimizer's first step imports it, for seconds: once in the process that forks, not in every rank."""
    import torch._dynamo  # noqa: F401
