"""A program that is told of several hosts: one host's ranks run. Each is told the size of the whole world, and none waits for the others."""
import importlib
import os

from . import library

HOSTS = int(os.environ.get("HEADROOM_DRY_HOSTS", "1") or 1)


def tell_the_world():
    """What torchrun told a rank, as if there were so many hosts."""
    here = os.environ.get("LOCAL_WORLD_SIZE", "")
    if HOSTS > 1 and here.isdigit():
        os.environ.update(WORLD_SIZE=str(int(here) * HOSTS), GROUP_WORLD_SIZE=str(HOSTS), ROLE_WORLD_SIZE=str(int(here) * HOSTS))


def begin(torch):
    if not torch.distributed.is_available():
        return
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # the attribute of that name is a function
    make = rendezvous.TCPStore

    def TCPStore(*args, **kwargs):
        return make(*args, **kwargs if len(args) > 5 else {**kwargs, "wait_for_workers": False})

    rendezvous.TCPStore = TCPStore
    if HOSTS > 1 and os.environ.get("RANK") == "0":
        library.mark("note", f"the ranks of one host were run, of {HOSTS}; the others are taken to do what these do")
