"""Bytes and time of a training step before it runs: no GPU, no NumPy and no torch are needed.

`model` is everywhere a preset's name ("small", "medium", "large", "xl", "2.7B", "xl-2026", "10B", "8B"), a path of a config.json, a dict of its keys,
or a transformers config object. `device` is "h200" or another known GPU, a path of a JSON file, "cpu", "cuda:0"; None is this machine.
"""

import dataclasses
import json
import numbers
import os
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional, Sequence, TypedDict, Union

from . import library as lib
from . import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

Model = Union[str, "os.PathLike[str]", Dict[str, Any], Any]
Device = Union[str, "os.PathLike[str]", Any]  # or a torch.device
Word = Union[str, Any]  # a word; for precision also a dtype of torch, NumPy or JAX
Words = Union[Word, Sequence[Word]]
Numbers = Union[int, Sequence[int]]


class Levers(TypedDict, total=False):
    """What may be chosen of a step beside its model and sizes, by the names and words of the options of `headroom step`."""

    precision: Word  # fp32, tf32, bf16, fp16, fp8
    scales: str  # for fp8: tensor, row, block
    attention: str
    keep: str
    logits: str
    masters: str
    gradients: str
    update: str
    moments: str
    copies: str
    ranks: int  # GPUs that take the step together; bytes are those of one
    shard: str
    split_tokens: bool


class LeverLists(TypedDict, total=False):
    """Words, or lists of words, to choose from."""

    precision: Words
    scales: Words
    attention: Words
    keep: Words
    logits: Words
    masters: Words
    gradients: Words
    update: Words
    moments: Words
    copies: Words


@dataclasses.dataclass(frozen=True)
class Component:
    """Tensors of one name and dtype, those of all blocks together."""

    name: str
    phase: str  # parameter, gradient, optimizer, input, saved, forward, backward, workspace
    dtype: str
    shape: Sequence[int]  # one tensor's
    tensors: int  # allocated at once, at most
    bytes: int  # all of these together
    at_peak_bytes: int  # allocated when the peak is reached


@dataclasses.dataclass(frozen=True)
class Moment:
    """A tensor that was allocated or freed."""

    what: str
    phase: str
    take: bool  # allocated; else freed
    bytes: int
    live_bytes: int  # after it


def _frame(rows, what="tables"):
    try:
        import pandas
    except ImportError:
        raise ImportError(f"pandas is not installed: {what} as DataFrames need it (pip install pandas)") from None
    return pandas.DataFrame(rows)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """A step, run dry: the peak is exact to the byte for this library's step."""

    model: str
    params: int
    batch: int
    len: int
    precision: str
    device: str
    peak_bytes: int
    standing_bytes: int  # between steps: weights, gradients, optimiser, inputs
    forward_peak_bytes: int  # a forward pass alone
    forward_backward_peak_bytes: int  # without the update
    overhead_bytes: int  # taken on the device beside tensors: the context, libraries
    memory_bytes: int  # asked about
    fits: bool  # all of these are within memory
    flops: float
    model_flops: float  # what MFU is counted by: no recomputation
    traffic_bytes: float
    host_bytes: int  # pinned host memory, where blocks keep tensors (keep="host:N"); not in the peak
    ms_at_least: Optional[float]  # a lower bound: every op at its ceiling, or its ms where that is less; None where a ceiling is not known
    ms: Optional[float]  # expected, where steps of such a machine were measured, and between what it lies; else None
    ms_low: Optional[float]
    ms_high: Optional[float]
    ms_by: str  # what the interval stands on, or why there is no ms
    at_peak_bytes: Dict[str, int]  # by phase
    components: List[Component] = dataclasses.field(repr=False)
    timeline: List[Moment] = dataclasses.field(repr=False)
    notes: List[str]
    settings: Dict[str, Any] = dataclasses.field(repr=False)  # micro_batches, documents, and every lever
    config: Dict[str, Any] = dataclasses.field(repr=False)  # the model's

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame of the components, largest first."""
        return _frame([dataclasses.asdict(c) for c in self.components])

    def timeline_to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame of live bytes over the step: a row for each tensor that came or went."""
        return _frame([dataclasses.asdict(m) for m in self.timeline])


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings of a step, those that fit first, fastest first. `rows` have the columns of `headroom plan --format json`."""

    fits: bool
    rows: List[Dict[str, Any]]
    notes: List[str]
    answer: Dict[str, Any] = dataclasses.field(repr=False)  # everything the command says

    @property
    def best(self) -> Optional[Dict[str, Any]]:
        """The first row, when anything fits."""
        return self.rows[0] if self.fits and self.rows else None

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame of the rows."""
        return _frame(self.rows)


@dataclasses.dataclass(frozen=True)
class PytorchMemory:
    """What PyTorch eager holds in a step of the same model. `rows` have the columns of `headroom memory model --as pytorch`."""

    rows: List[Dict[str, Any]]  # one for each batch, precision and len; each has its `components`
    notes: List[str]
    answer: Dict[str, Any] = dataclasses.field(repr=False)

    @property
    def peak_bytes(self) -> int:
        """Of a whole training step, of the last row."""
        return int(self.rows[-1]["train_peak_bytes"])

    @property
    def components(self) -> List[Dict[str, Any]]:
        """Of the last row, largest first."""
        return list(self.rows[-1]["components"])

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame of the rows, without their components."""
        return _frame([{k: v for k, v in row.items() if k != "components"} for row in self.rows])


def _model(model):
    if isinstance(model, dict):
        return model
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if hasattr(model, "to_dict"):  # transformers
        return json.loads(json.dumps(model.to_dict(), default=str))
    raise TypeError(f"model is a {type(model).__name__}: a preset's name, a path, a dict or a transformers config")


def _memory(memory_gib, memory_bytes):
    if memory_gib is not None and memory_bytes is not None:
        raise ValueError("memory_gib and memory_bytes say the same: give one of them")
    if memory_gib is None:
        return memory_bytes
    meant = "a number above 0 and below 2^32, or None for the device's"
    if isinstance(memory_gib, bool) or not isinstance(memory_gib, numbers.Real):
        raise TypeError(f"memory_gib is {memory_gib!r}: {meant}")
    if not 0 < memory_gib < 2**32:
        raise ValueError(f"memory_gib is {memory_gib}: {meant}")
    return max(1, int(memory_gib * 2**30))


def _plain(value):  # numbers of NumPy are numbers too
    return value.item() if hasattr(value, "item") else value


def _ask(name, request):
    request = {key: value for key, value in request.items() if value is not None}
    device = request.get("device", "")
    if not isinstance(device, str):
        try:  # a path, or a torch.device
            request["device"] = str(device) if type(device).__module__ == "torch" else os.fspath(device)
        except TypeError:
            raise TypeError(
                f"device is a {type(device).__name__}: the name of a GPU ('h200'), a file, 'cpu', 'cuda:0' or a torch.device"
            ) from None
    if "precision" in request:
        request["precision"] = words.precision(request["precision"])
    try:
        text = json.dumps({"version": 1, **request}, default=_plain)
    except (TypeError, ValueError) as refusal:
        raise TypeError(f"{name}: {refusal}") from None
    except RecursionError:
        raise ValueError(f"{name}: what was given is nested too deep to be a model's description") from None
    return json.loads(lib.owned_text("headroom_" + name, text.encode()))


def _refuse_misspelt(function, levers, described):
    misspelt = {name: value for name, value in levers.items() if name not in described.__annotations__}
    if misspelt:
        words.refuse(function, misspelt, words.OF_STEPS, also=described.__annotations__)


def forecast(
    model: Model = "small",
    *,
    batch: int = 1,
    len: Optional[int] = None,
    documents: Optional[Sequence[int]] = None,
    micro_batches: Optional[int] = None,
    device: Optional[Device] = None,
    memory_gib: Optional[float] = None,
    memory_bytes: Optional[int] = None,
    **levers: "Unpack[Levers]",
) -> Forecast:
    """A training step of `model`, run dry: its peak, who holds it, live bytes over time, and a lower bound of its time.

    headroom.forecast("small", batch=4, len=1024, precision="bf16", device="h200").peak_bytes

    len: tokens of a sequence, 1024; or documents: lengths that are packed into each row. levers: Levers, as precision="bf16".
    Without precision: bf16 on a GPU, FP32 on a CPU.
    """
    _refuse_misspelt(forecast, levers, Levers)
    answer = _ask(
        "forecast",
        dict(
            model=_model(model), batch=batch, len=len, documents=documents, micro_batches=micro_batches, device=device,
            memory_bytes=_memory(memory_gib, memory_bytes), **levers,
        ),
    )  # fmt: skip
    known = {f.name for f in dataclasses.fields(Forecast)}
    answer["components"] = [Component(**c) for c in answer["components"]]
    answer["timeline"] = [Moment(**m) for m in answer["timeline"]]
    return Forecast(**{k: v for k, v in answer.items() if k in known})


def plan(
    model: Model = "small",
    *,
    batch: int = 4,
    len: int = 1024,
    device: Optional[Device] = None,
    memory_gib: Optional[float] = None,
    memory_bytes: Optional[int] = None,
    gpus: int = 1,
    per_host: int = 8,
    link: Optional[str] = None,
    most: int = 10,
    **levers: "Unpack[LeverLists]",
) -> Plan:
    """The settings of a step that fit a memory, fastest first; or the nearest one, with fits False, when none does.

    levers: LeverLists, words or lists of words to choose from, as precision=["bf16", "fp8"]. Without one: what `headroom plan` tries.
    per_host: GPUs of a host; link: the rate between hosts, of each GPU, as "50GB/s".
    """
    _refuse_misspelt(plan, levers, LeverLists)
    answer = _ask(
        "plan",
        dict(
            model=_model(model), batch=batch, len=len, device=device, memory_bytes=_memory(memory_gib, memory_bytes), gpus=gpus,
            per_host=per_host, link=link, most=most, **levers,
        ),
    )  # fmt: skip
    return Plan(fits=answer["fits"], rows=answer.get("rows", []), notes=answer.get("notes", []), answer=answer)


def memory_as_pytorch(
    model: Model = "small",
    *,
    batch: Numbers = 1,
    len: Numbers = 1024,
    precision: Optional[Words] = None,
    attention: Optional[str] = None,
    softmax: Optional[str] = None,
    silu: Optional[str] = None,
    parameters: Optional[str] = None,
    adam: Optional[str] = None,
    keep: Optional[Words] = None,
    compile: Optional[str] = None,
    lora: Optional[int] = None,
    accumulate: Optional[int] = None,
    ranks: Optional[int] = None,
    shard: Optional[str] = None,
    device: Optional[Device] = None,
    memory_gib: Optional[float] = None,
    memory_bytes: Optional[int] = None,
    workspace_bytes: Optional[int] = None,
    **misspelt: NoReturn,
) -> PytorchMemory:
    """What PyTorch eager would hold in a training step of `model`: its allocator, its saved tensors, its workspaces.

    attention: "plain" (N×N matrices) or "flash" (F.scaled_dot_product_attention); softmax and silu: "builtin" or "composed" of elementwise steps;
    parameters: "whole" (FP32, with autocast) or "half" (in the precision, as from_pretrained loads them); adam: "foreach", "fused", "8bit" and what `memory model --help` names; keep: "everything",
    "input" (each block checkpointed), "groups:K", "groups:K:everything"; compile: "none", "blocks" or "model"; lora: rank of adapters; ranks and shard: "none" (DDP), "gradients"
    or "everything" (FSDP2).
    """
    if misspelt:
        words.refuse(memory_as_pytorch, misspelt, words.OF_STEPS)
    answer = _ask(
        "memory_as_pytorch",
        dict(
            model=_model(model), batch=batch, len=len, precision=precision, attention=attention, softmax=softmax, silu=silu,
            parameters=parameters, adam=adam, keep=keep, compile=compile, lora=lora, accumulate=accumulate, ranks=ranks, shard=shard,
            device=device, memory_bytes=_memory(memory_gib, memory_bytes), workspace_bytes=workspace_bytes,
        ),
    )  # fmt: skip
    return PytorchMemory(rows=answer["rows"], notes=answer.get("notes", []), answer=answer)
