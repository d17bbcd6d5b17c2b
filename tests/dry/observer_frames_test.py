"""What the library reads of Python's frames: where an allocation was made, the object whose method runs, and the phase."""

import os
import struct
import subprocess
import tempfile
import textwrap
import unittest

from observer_cases import Observer


class Frames(Observer):
    def phases(self, code):
        """The phases that the library marks by the frames alone: `made(bytes)` makes a block of the card, `gradients(on)` says whether autograd records."""
        c10 = os.path.join(tempfile.mkdtemp(dir=self.scratch.name), "libc10.so")
        source = "namespace c10 { struct GradMode { static bool is_enabled(); }; bool on = true; bool GradMode::is_enabled() { return on; } }\n" \
                 'extern "C" void gradients(int on) { c10::on = on; }\n'
        command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-Wl,-soname,libc10.so", "-x", "c++", "-", "-o", c10]
        subprocess.run(command, input=source, text=True, check=True)
        torch = self.folder({
            "torch/nn.py": "class Module:\n    def __call__(self, run):\n        return run(self)\n",
            "torch/utils/_contextlib.py": "def decorated(run):\n    gradients(0)\n    run()\n    gradients(1)\n",
            "torch/distributed/fsdp/_state.py": "def _pre_forward(run):\n    run()\n",
            "torch/_functorch/_aot_autograd/runtime_wrappers.py": "def forward(run):\n    gradients(0)\n    run()\n    gradients(1)\n"})
        begin = f"""
            import ctypes, sys, types
            from headroom_dry import layout, library
            gradients = ctypes.CDLL({c10!r}).gradients
            report = getattr(library._all, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
            report.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16
            def made(bytes):
                report(1 << 30, bytes, bytes, bytes, 1)
            def file(name):
                words = {{"gradients": gradients}}
                exec(compile(open({torch!r} + "/torch/" + name).read(), {torch!r} + "/torch/" + name, "exec"), words)
                return types.SimpleNamespace(**words)
            Module, decorated = file("nn.py").Module, file("utils/_contextlib.py").decorated
            library.python(ctypes.byref(layout.learn(types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module)))))
            """
        entries, said = self.entries(textwrap.dedent(begin) + textwrap.dedent(code))
        names, out = {}, []
        for kind, payload in entries:
            if kind == 1:  # Kind::name
                number, length = struct.unpack_from("<2I", payload)
                names[number] = payload[8:8 + length].decode()
            elif kind == 17 and names[struct.unpack_from("<I", payload)[0]] == "phase":
                out.append(names.get(struct.unpack_from("<2I", payload)[1], ""))
        return out

    def test_what_fsdp_gathers_before_a_forward_pass_is_no_evaluation(self):
        gather = textwrap.dedent("""
            gather = file("distributed/fsdp/_state.py")._pre_forward
            def root(module):
                gather(lambda: decorated(lambda: made(512)))
                made(512)
            """)
        self.assertEqual(self.phases(gather + "Module()(root)"), ["forward"])
        evaluation = "Module()(lambda module: decorated(lambda: made(512)))"
        self.assertEqual(self.phases(evaluation), ["evaluation"])
        later = "decorated(lambda: Module()(lambda module: made(512)))\ndecorated(lambda: Module()(lambda module: gather(lambda: made(512))))"
        self.assertEqual(self.phases(gather + later), ["evaluation"])

    def test_a_compiled_forward_pass_is_one(self):
        code = """
            forward = file("_functorch/_aot_autograd/runtime_wrappers.py").forward
            forward(lambda: made(512))
            """
        self.assertEqual(self.phases(code), ["forward"])

    def frames(self, code):
        """(file, function, line) of the frames in which the last block was made, the innermost first."""
        names, stacks, block = {}, {}, None
        for kind, payload in self.entries(code)[0]:
            if kind == 1:
                number, length = struct.unpack_from("<2I", payload)
                names[number] = payload[8:8 + length].decode()
            elif kind == 2:
                number, count = struct.unpack_from("<2I", payload)
                stacks[number] = [struct.unpack_from("<3I", payload, 8 + 16 * i) for i in range(count)]
            elif kind == 3:
                block = struct.unpack_from("<QqQQ4I", payload)
        return [(names[file], names[function], line) for file, function, line in stacks[block[6]]]

    def test_this_interpreters_frames_are_understood(self):
        code = """\
            import ctypes
            from headroom_dry import layout, library
            library.python(ctypes.byref(layout.learn()))
            report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
            report.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16
            def inner():
                report(1 << 21, 512, 512, 1 << 21, 1)
            def outer():
                yield inner()
            list(map(lambda one: [*outer()], "a"))
            """
        self.assertEqual(self.frames(code), [("<string>", "inner", 7), ("<string>", "outer", 9), ("<string>", "<lambda>", 10), ("<string>", "<module>", 10)])

    def test_names_in_any_alphabet_are_read(self):
        code = """\
            import ctypes
            from headroom_dry import layout, library
            library.python(ctypes.byref(layout.learn()))
            report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
            report.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16
            words = {"report": report}
            for file in "/a/tr\\xe4in.py", "/\\u0142/\\xe4.py", "/\\U0001f600\\u8bad\\xe9.py", "/\\udce4.py":
                exec(compile("def gr\\xf6\\xdfe(then):\\n report(1 << 21, 512, 512, 1 << 21, 1) if then is None else then(None)", file, "exec"), words)
                words["f" + str(len(words))] = words["gr\\xf6\\xdfe"]
            functions = [words[name] for name in words if name[0] == "f"]
            functions[0](lambda _: functions[1](lambda _: functions[2](lambda _: functions[3](None))))
            """
        seen = [frame for frame in self.frames(code) if frame[0] != "<string>"]
        self.assertEqual(seen, [(file, "gr\xf6\xdfe", line) for file, line in (
            ("/\ufffd.py", 2), ("/\U0001f600\u8bad\xe9.py", 2), ("/\u0142/\xe4.py", 2), ("/a/tr\xe4in.py", 2))])

    def test_the_object_whose_method_a_frame_is_of_is_found(self):
        code = """
            import sys
            from headroom_dry.variables import owner
            class Thing:
                def plain(self): return owner(sys._getframe()) is self
                def in_a_cell(self): return (lambda: self)() is owner(sys._getframe())
                def deleted(self):
                    del self
                    return owner(sys._getframe()) is None
                def from_within(self): return (lambda: owner(sys._getframe(1)) is self)()
            thing = Thing()
            print(thing.plain(), thing.in_a_cell(), thing.deleted(), thing.from_within(), owner(sys._getframe()))
            """
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["True True True True None"])


if __name__ == "__main__":
    unittest.main()
