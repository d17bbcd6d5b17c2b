"""Where this interpreter keeps its frames, learned from the running one. The library then reads them without Python's lock (library/frames.h)."""
import ctypes
import os
import struct
import sys


class Layout(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in (
        "thread_frame thread_entry entry_frame frame_code frame_back frame_instruction frame_first instruction_is_index instruction_unit "
        "code_begin code_file code_function text_begin text_length text_state text_ascii_mask text_wide_begin text_kind_bit").split()] + [
        ("code_type", ctypes.c_void_p), ("module_codes", ctypes.c_void_p * 4)]


def numbers(raw):
    return struct.unpack(f"{len(raw) // 8}Q", raw[:len(raw) // 8 * 8])


def place(values, wanted, mask=~0):
    """The offset of the word that holds `wanted`."""
    return next(8 * i for i, value in enumerate(values) if value & mask == wanted)


def learn(torch=None):
    """A Layout; StopIteration, ValueError or OSError where this interpreter is none that is understood."""
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)  # reading a wrong address fails, and does not end the process
    try:
        return learn_from(memory, torch)
    finally:
        os.close(memory)


def learn_from(memory, torch):
    read, frame_at = os.pread, sys._getframe
    out = Layout(thread_frame=-1, thread_entry=-1, entry_frame=-1, instruction_unit=1 if sys.version_info < (3, 10) else 2, text_length=16)
    out.instruction_is_index = sys.version_info < (3, 11)
    here = ctypes.pythonapi.PyThreadState_Get
    here.restype = ctypes.c_void_p
    thread = here()

    def raw_of(frame):  # the address of what the interpreter calls a frame: since 3.11 a PyFrameObject points to it, after its f_back
        return id(frame) if sys.version_info < (3, 11) else numbers(read(memory, 32, id(frame)))[3]

    def instructions(first):  # the caller's: candidates for the place of its instruction
        frame = frame_at(1)
        raw, code = read(memory, 256, raw_of(frame)), id(frame.f_code)
        if out.instruction_is_index:
            return {(4 * i, 0) for i, v in enumerate(struct.unpack("64i", raw)) if v * out.instruction_unit == frame.f_lasti}
        size = frame.f_code.__sizeof__()
        return {(8 * i, v - code - frame.f_lasti) for i, v in enumerate(numbers(raw)) if code < v < code + size}

    def caller(first):
        frame, own = frame_at(), frame_at(1)
        address = raw_of(frame)
        fields = numbers(read(memory, 512 if out.instruction_is_index else 160, address))
        out.frame_code = place(fields, id(frame.f_code), ~7)
        out.frame_back = place(fields, raw_of(own))
        out.frame_first = place(fields, id(first), ~7)
        found = instructions(first)
        found &= instructions(found)
        out.frame_instruction, out.code_begin = (found & instructions(found)).pop()
        fields = numbers(read(memory, 1024, thread))  # while this frame is the innermost
        if address in fields:
            out.thread_frame = place(fields, address)
            return
        for i, value in enumerate(fields):
            if value >> 47 == 0 and value > 65536:
                try:
                    entry = numbers(read(memory, 32, value))
                except OSError:
                    continue
                if address in entry:
                    out.thread_entry, out.entry_frame = 8 * i, place(entry, address)
                    return
        raise ValueError("no frame in the thread's state")

    caller(object())
    learn_code(out, memory)
    learn_texts(out, memory)
    if torch is not None:
        name_module_calls(out, torch.nn.Module)
    return out


def learn_code(out, memory):
    code = learn.__code__
    fields = numbers(os.pread(memory, 400, id(code)))
    out.code_file, out.code_function, out.code_type = place(fields, id(code.co_filename)), place(fields, id(code.co_name)), id(type(code))


def learn_texts(out, memory):
    """Where a text's characters begin, and the bits that say how many bytes each has; other bits are not always cleared."""
    def states_of(end):
        texts = ["".join(["a quiet wor", end, str(i)]) for i in range(16)]
        return [struct.unpack("I", os.pread(memory, 4, id(t) + 32))[0] for t in texts]

    states = [states_of(end) for end in ("d", "\xe9", "\u0141", "\U0001f600")]
    plain = "".join(["a quiet word ", str(len(states))])
    out.text_begin, out.text_state = os.pread(memory, 80, id(plain)).index(plain.encode()), 32
    bits = [b for b in range(32) if all(s >> b & 1 for s in states[0]) and not any(s >> b & 1 for s in states[1])]
    if not bits or bits[0] == 31 or numbers(os.pread(memory, 24, id(plain)))[2] != len(plain):
        raise ValueError("no layout of texts")
    out.text_ascii_mask = 1 << bits[0]
    kinds = [b for b in range(29) if all(s >> b & 7 == kind for kind, of_kind in zip((1, 2, 4), states[1:]) for s in of_kind)]
    wide = "".join(["\u0141\xf3d\u017a ", str(len(kinds))])
    at = os.pread(memory, 160, id(wide)).find(wide.encode("utf-16-le"))
    out.text_wide_begin, out.text_kind_bit = (at, kinds[0]) if kinds else (-1, 0)


def name_module_calls(out, module):
    """The codes by which PyTorch calls a module; not those whose `self` is a cell, which is in its place."""
    calls = {getattr(getattr(module, name, None), "__code__", None) for name in ("_call_impl", "_wrapped_call_impl", "__call__")} - {None}
    calls = {code for code in calls if "self" not in code.co_cellvars}
    for i, code in enumerate(sorted(calls, key=id)[:4]):
        out.module_codes[i] = id(code)
