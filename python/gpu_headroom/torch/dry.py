"""Does a function fit on a card? It runs in a process of its own, dry: under a CUDA that is not there, with PyTorch's own allocator counting."""

import dataclasses
import inspect
import json
import numbers
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
    if named and not shutil.which(named):
        raise FileNotFoundError(f"forecast: HEADROOM_PROGRAM is {named!r}, where no program is; name the program headroom, or unset the variable")
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


_LEAST_NUMBER = 1 << 20  # a number of bytes that is meant as bytes is at least this
_MOST_STEPS = 1 << 20


def _called(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if len(repr(value)) > 40 else f"{value!r}"


def _device_option(device: Any) -> str:
    takes = "the name of a GPU ('h100'), a JSON file that describes one, or None: the card that is here, else an H200"
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        if device.type != "cuda":
            raise ValueError(f"forecast: device is torch.device({str(device)!r}), and a function is forecast for a GPU; it takes {takes}")
        device = str(device)
    if not isinstance(device, (str, os.PathLike)):
        raise TypeError(f"forecast: device is {_shown(device)}; it takes {takes}")
    text = os.fspath(device)
    if not isinstance(text, str) or not text or text == "cpu":
        raise ValueError(f"forecast: device is {text!r}; it takes {takes}")
    return text


def _memory_option(memory: Any) -> str:
    takes = "a text with its unit ('24GiB', '80GB'), a number of bytes, or None: all that the card has"
    if isinstance(memory, str):
        return memory
    if isinstance(memory, bool) or not isinstance(memory, numbers.Real):
        raise TypeError(f"forecast: memory is {_shown(memory)}; it takes {takes}")
    if not 0 < memory < 2**62:
        raise ValueError(f"forecast: memory is {memory}; it takes {takes}")
    if memory < _LEAST_NUMBER:
        raise ValueError(f"forecast: memory is {memory}, which as a number means bytes; write '{memory:g}GiB' for {memory:g} GiB")
    return f"{int(memory)}B"


def _steps_option(steps: Any) -> str:
    takes = f"a whole number of optimizer steps from 0 to {_MOST_STEPS}; 0 ends once the peaks of two steps agree"
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral):
        raise TypeError(f"forecast: steps is {_shown(steps)}; it takes {takes}")
    if not 0 <= steps <= _MOST_STEPS:
        raise ValueError(f"forecast: steps is {steps}; it takes {takes}")
    return str(int(steps))


def _check_call(function: Any, args: Any, kwargs: Any, own: Dict[str, Any]) -> None:
    """Refuses what cannot be called, before a process is begun. own: arguments that forecast kept for itself."""
    if not callable(function):
        more = "; for a script, use the command: headroom forecast -- python3 train.py" if isinstance(function, str) else ""
        raise TypeError(f"forecast: function is {_shown(function)}; it takes a function, and that function's arguments after it{more}")
    name = _called(function)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"forecast: a call of {name} runs nothing yet (async or yield); give a function that runs it to its end")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # nothing is known of a built-in one
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        both = [word for word in own if word in signature.parameters]
        more = f"; {both[0]} is forecast's own argument: give functools.partial({name}, {both[0]}=...)" if both else ""
        raise TypeError(f"forecast: {name} cannot be called like this: {e}{more}") from None


def _packed(function: Any, args: Any, kwargs: Any) -> bytes:
    try:
        return carried.packed((function, args, kwargs))
    except Exception as e:
        parts = [("function", function), *((f"argument {i + 1}", x) for i, x in enumerate(args)), *kwargs.items()]
        for name, part in parts:
            try:
                carried.packed(part)
            except Exception as of_part:
                raise TypeError(
                    f"forecast: {name} cannot be carried into another process: {of_part}; let the function make it instead"
                ) from of_part
        raise TypeError(f"forecast: the function and its arguments cannot be carried into another process: {e}") from e


def _raise_for(code: int, said: str) -> None:
    """What the command said on standard error: its own sentence at the end, before it what the function printed."""
    lines = said.strip().splitlines()
    if not lines:
        raise RuntimeError(f"headroom forecast ended with {code}")
    sentence = lines[-1].replace("headroom forecast: ", "", 1).replace(f"'{sys.executable}'", "the function")
    for name in ("device", "memory", "steps"):
        sentence = sentence.replace(f"--{name}", name)
    if code == 2:  # wrong usage
        raise ValueError(f"forecast: {sentence}")
    raise RuntimeError("\n".join([f"forecast: {sentence}", *lines[:-1]]))


def forecast(
    function: Callable[..., Any],
    *args: Any,
    device: Union[None, str, "os.PathLike[str]", Any] = None,
    memory: Union[None, int, float, str] = None,
    steps: int = 0,
    **kwargs: Any,
) -> ProgramForecast:
    """Runs function(*args, **kwargs) dry, in a process of its own, and returns what it takes of the card. No GPU is needed; PyTorch is the CUDA build.

    device: "h100" or another known GPU, or a JSON file; None: the card that is here, else an H200. memory: of the card, as "24GiB", or a number of bytes.
    steps: end after so many optimizer steps; 0: once the peaks of two steps agree. What the function prints goes to standard error.
    A function that has an argument of one of these names gets it by functools.partial(function, steps=100).
    """
    given = {"device": device, "memory": memory, "steps": steps or None}
    own = {name: value for name, value in given.items() if value is not None}
    command = [_program(), "forecast", "--format", "json", "--steps", _steps_option(steps)]
    if device is not None:
        command += ["--device", _device_option(device)]
    if memory is not None:
        command += ["--memory", _memory_option(memory)]
    _check_call(function, args, kwargs, own)
    call = _packed(function, args, kwargs)
    with _CallFolder() as folder:
        file, results = (os.path.join(folder.path, name) for name in ("call", "results.db"))
        try:
            with open(file, "wb") as f:
                path = [os.getcwd() if p == "" else p for p in sys.path]
                f.write(pickle.dumps([str(pathlib.Path(gpu_headroom.__file__).parent.parent)] + path, protocol=4))
                f.write(call)
        except OSError as e:
            raise OSError(
                e.errno, f"forecast: the function and its arguments ({len(call)} bytes) cannot be written: {e.strerror}; TMPDIR names another folder", file
            ) from None
        command += ["--db", results, "--", sys.executable, carried.__file__, file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            folder.works(child.pid)
            try:
                out, err = child.communicate()
            except BaseException:  # as Ctrl-C
                child.kill()
                raise
    err = "".join(line for line in err.splitlines(keepends=True) if results not in line)  # the file of results is gone
    if not out.strip():
        _raise_for(child.returncode, err)
    answer = json.loads(out)
    if answer["status"] == "failed":
        raise RuntimeError(f"the function failed: {answer['why']}\n{err}")
    fields = [f.name for f in dataclasses.fields(ProgramForecast) if f.name != "json"]
    return ProgramForecast(**{name: answer[name] for name in fields}, json=answer)
