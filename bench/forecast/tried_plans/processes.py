"""Work on one share of the draws in each of several processes."""
import os
import sys
import time


def run(work, workers, until, beyond):
    """work(i) in `workers` processes of their own; one that has not ended `beyond` seconds after `until` is stuck, and is ended."""
    children = []
    for i in range(workers):
        pid = os.fork()
        if pid == 0:
            try:
                work(i)
            except BaseException as e:
                print("worker", i, repr(e)[:300], file=sys.stderr)
            sys.stderr.flush()
            os._exit(0)
        children.append(pid)
    while children and time.time() < until + beyond:
        for pid in list(children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                children.remove(pid)
        time.sleep(0.2)
    for pid in children:
        os.kill(pid, 9)
