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

    fits: bool
    status: str  # ok, oom, failed
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
        gib = 1 << 30
        word = "Fits" if self.fits else "Does not fit" if self.status == "oom" else "Failed"
        said = f"{word} on {self.device}: needs {self.needed_bytes / gib:.2f} GiB of {self.memory_bytes / gib:.2f} GiB"
        return said + (f"; {self.why}" if self.why else "")


def _program() -> str:
    named = os.environ.get("HEADROOM_PROGRAM")
    inside = pathlib.Path(gpu_headroom.__file__).parent / "bin" / "headroom"
    found = named or (str(inside) if inside.exists() else None) or shutil.which("gpu-headroom") or shutil.which("headroom")
    if not found:
        raise FileNotFoundError("the program headroom is not on PATH; install it, or name it by the variable HEADROOM_PROGRAM")
    return found


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
    with tempfile.TemporaryDirectory(prefix="headroom-call-") as folder:
        file = os.path.join(folder, "call")
        with open(file, "wb") as f:
            path = [os.getcwd() if p == "" else p for p in sys.path]
            f.write(pickle.dumps([str(pathlib.Path(gpu_headroom.__file__).parent.parent)] + path, protocol=4))
            f.write(call)
        command += ["--db", os.path.join(folder, "results.db"), "--", sys.executable, carried.__file__, file]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not ended.stdout.strip():
        raise RuntimeError(ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else f"headroom forecast ended with {ended.returncode}")
    answer = json.loads(ended.stdout)
    if answer["status"] == "failed":
        raise RuntimeError(f"the function failed: {answer['why']}\n{ended.stderr}")
    fields = [f.name for f in dataclasses.fields(ProgramForecast) if f.name != "json"]
    return ProgramForecast(**{name: answer[name] for name in fields}, json=answer)
