"""Does a function fit on a card? It runs in a process of its own, dry: under a CUDA that is not there, with PyTorch's own allocator counting."""

import dataclasses
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Union

import gpu_headroom
from gpu_headroom import carried


@dataclasses.dataclass(frozen=True)
class ProgramForecast:
    """What `headroom forecast` answers, by the names of its JSON. `str()` is the answer for people."""

    fits: Optional[bool]  # None: the function was not seen to its end
    status: str  # ok, oom, interrupted
    why: str
    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    beside_bytes: int
    needed_bytes: int
    memory_bytes: int
    ms: Optional[float]
    ranks: List[Dict[str, Any]]
    phases: List[Dict[str, Any]]
    at_peak: List[Dict[str, Any]]
    uncertain: Dict[str, Any]
    json: Dict[str, Any] = dataclasses.field(repr=False)  # everything

    def __str__(self) -> str:
        return str(self.json["answer"])


def _program() -> str:
    named = os.environ.get("HEADROOM_PROGRAM")
    inside = pathlib.Path(gpu_headroom.__file__).parent / "bin" / "headroom"
    found = named or (str(inside) if inside.exists() else None) or shutil.which("gpu-headroom") or shutil.which("headroom")
    if not found:
        raise FileNotFoundError("the program headroom is not on PATH; install it, or name it by the variable HEADROOM_PROGRAM")
    return found


# It reads the number of the process that works for the call, then waits for the caller's end.
_GUARDIAN = """
trap '' HUP INT QUIT TERM
cd /
while read -r line; do pid=$line; done
[ -z "$pid" ] || kill -KILL "$pid"
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"""


class _CallFolder:
    """A folder for one call. A caller that is killed hard leaves neither the folder nor the process that works for it."""

    def __enter__(self) -> "_CallFolder":
        self.path = tempfile.mkdtemp(prefix="headroom-call-")
        self.guardian = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN, "sh", self.path],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        return self

    def works(self, pid: int) -> None:
        assert self.guardian.stdin is not None
        self.guardian.stdin.write(b"%d\n" % pid)
        self.guardian.stdin.flush()

    def __exit__(self, *_: object) -> None:
        self.guardian.kill()
        self.guardian.communicate()
        shutil.rmtree(self.path, ignore_errors=True)


def forecast(
    function: Callable[..., Any],
    *args: Any,
    device: Optional[str] = None,
    memory: Union[None, int, str] = None,
    steps: int = 0,
    **kwargs: Any,
) -> ProgramForecast:
    """Runs function(*args, **kwargs) dry, in a process of its own, and returns what it takes of the card. No GPU is needed; PyTorch is the CUDA build.

    device: "h100" or another known GPU, or a JSON file; None: the card that is here, else an H200. memory: of the card, as "24" (GiB) or bytes.
    steps: end after so many optimizer steps; 0: once the peaks of two steps agree. What the function prints goes to standard error.
    """
    command = [_program(), "forecast", "--format", "json", "--steps", str(steps)]
    if device is not None:
        command += ["--device", device]
    if memory is not None:
        command += ["--memory", f"{memory}B" if isinstance(memory, int) else memory]
    try:
        call = carried.packed((function, args, kwargs))
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        raise TypeError(f"forecast: the function and its arguments cannot be carried into another process: {e}") from e
    with _CallFolder() as folder:
        file = os.path.join(folder.path, "call")
        with open(file, "wb") as f:
            path = [os.getcwd() if p == "" else p for p in sys.path]
            f.write(pickle.dumps([str(pathlib.Path(gpu_headroom.__file__).parent.parent)] + path, protocol=4))
            f.write(call)
        command += ["--db", os.path.join(folder.path, "results.db"), "--", sys.executable, carried.__file__, file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            folder.works(child.pid)
            try:
                out, err = child.communicate()
            except BaseException:  # as Ctrl-C
                child.kill()
                raise
    if not out.strip():
        raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else f"headroom forecast ended with {child.returncode}")
    answer = json.loads(out)
    if answer["status"] == "failed":
        raise RuntimeError(f"the function failed: {answer['why']}\n{err}")
    fields = [f.name for f in dataclasses.fields(ProgramForecast) if f.name != "json"]
    return ProgramForecast(**{name: answer[name] for name in fields}, json=answer)
