"""Calls that were made before, without Python's code between torch and the library: src/capi/python_attention.cpp.

`attend` is tried first, where it is there. It serves a call whose tensors have the shapes and strides of one that `keep` was told of, and whose
other arguments are the same; it returns None for any other, and then the code in this package does it. Both give the same bits and
the same errors. Needs the exchange interface of DLPack, which torch has since 2.10, and Python's lock.
"""

import ctypes
import sysconfig

import torch

from .. import library as lib

attend = None  # (q, k, v, return_lse, asked): o, or (o, lse), or None
_keep = None


def keep(settled, q, k, v, asked, draw=None):
    """From now on attend() serves calls like this one. `settled`: as direct.settled has it; `asked`: what attend() gets, a tuple; `draw`: makes
    a call's seed, where there is dropout. Of what else is `more`, sinks, documents and slopes, `asked` has the tensors, which are not fixed."""
    call, ready, _ = settled
    if attend is None or ready.copies or not _fixed(asked) or (call.more and draw is None):
        return
    if call.cuda and call.dtype == torch.float32:  # tf32 may be switched between calls
        return
    o = like(call.o_shape, call.o_stride, (q,))
    _keep(q, k, v, asked, _pass(call, ready, 0, settled), o, call.one, draw)


def like(shape, stride, tensors):
    """(which of the tensors has this shape and these strides, or -1; shape; stride)."""
    same = (at for at, t in enumerate(tensors) if t is not None and tuple(t.shape) == shape and t.stride() == stride)
    return next(same, -1), shape, stride


def _fixed(value):
    """Whether nothing can change it while it stays the same object, as a tensor could be changed."""
    return value is None or type(value) in (bool, int, float, str) or (type(value) is tuple and all(map(_fixed, value)))


def _pass(call, ready, which, owner):
    return ready.handle, call.workspace[which], call.room[which], owner


def _learn(settled, d_o, q, k, v, o, lse, random):
    """What backward needs for tensors with these strides: (pass, dq, dk, dv); None: they are left to Python."""
    call = settled[0]
    if not lse.is_contiguous():
        return None
    at_hand = [None, q, k, v, o, None]  # as in C++: the gradients come behind d_o, q, k, v, o and lse
    made, outputs = [], []
    for shape, stride in (call.of_q, call.of_k, call.of_v):
        outputs.append(like(shape, stride, at_hand + made))
        made.append(q.new_empty_strided(shape, stride))
    key = call.key_of_backward(d_o, None, q, k, v, o, None, None, None, random, None)
    ready = call.ready_backward(key, d_o, None, q, k, v, o, lse, *made, random=random)
    return None if ready.copies else (_pass(call, ready, 1, ready), *outputs)


def _raise(status):
    raise lib.failed(status)


def _as_method(function):
    """A function in C, which is none by itself."""
    make = ctypes.pythonapi.PyInstanceMethod_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make(function)


def set_up(general):
    """Makes `attend`, where this Python and this torch can. `general`: backward in Python, (settled, saved, d_o, dlse)."""
    global attend, _keep
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return
    try:
        ambient = (
            torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack, torch._C._functorch.peek_interpreter_stack,
            torch._C._get_tracing_state, torch._C._is_any_autocast_enabled, torch._C._get_deterministic_algorithms, torch.get_num_threads,
        )  # fmt: skip
        tried, forward, backward, kept, prepare = lib.python_attention()
    except (AttributeError, ValueError):  # ValueError: ctypes has it for NULL
        return

    class _Attention(torch.autograd.Function):
        pass

    _Attention.forward = staticmethod(forward)
    _Attention.backward = staticmethod(lambda ctx, d_o, dlse=None: general(ctx.settled, ctx.saved_tensors, d_o, dlse))  # what compiled autograd reads
    _Attention._backward_cls.apply = _as_method(backward)  # what autograd calls
    apply = super(torch.autograd.Function, _Attention).apply  # Function's own looks for what `ambient` has looked for
    try:
        prepare(
            exchange, torch.Tensor, torch.nn.Parameter, torch.empty_like, torch.Tensor.new_empty_strided, torch.is_grad_enabled, ambient, apply,
            _learn, general, _raise,
        )  # fmt: skip
    except (NotImplementedError, ValueError):
        return
    attend, _keep = tried, kept
