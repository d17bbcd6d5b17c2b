"""What a dry run counts of the host: operations, nodes of autograd, calls of Python, bytes; and what of it is the observer's own."""

import os
import struct
import subprocess
import tempfile
import unittest

from observer_cases import Observer

TORCH = """
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
namespace at {
enum class RecordScope : std::uint8_t { FUNCTION, BACKWARD_FUNCTION };
struct StepCallbacks { long one[20]; ~StepCallbacks() { one[0] = 0; } };
__attribute__((noinline, visibility("default"))) std::optional<StepCallbacks> getStepCallbacksUnlessEmpty(RecordScope scope) {
  if (scope == RecordScope::FUNCTION) return {};
  return StepCallbacks{{7, 8, 9}};
}
}
namespace c10 { __attribute__((noinline, visibility("default"))) void* alloc_cpu(std::size_t bytes) { return reinterpret_cast<void*>(bytes + 1); } }
extern "C" long run(int operations, int nodes) {
  long sum = reinterpret_cast<std::intptr_t>(c10::alloc_cpu(600));
  for (int i = 0; i < operations; ++i) sum += at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  for (int i = 0; i < nodes; ++i) sum += at::getStepCallbacksUnlessEmpty(at::RecordScope::BACKWARD_FUNCTION)->one[2];
  return sum;
}
// As autograd does: a thread of C++ gets a state of Python's, gives the lock back, runs a node, and calls what Python gave it.
extern "C" int PyGILState_Ensure(); extern "C" void PyGILState_Release(int);
extern "C" void* PyEval_SaveThread(); extern "C" void PyEval_RestoreThread(void*);
extern "C" void backward(void (*hook)()) {
  std::thread([hook] {
    const int state = PyGILState_Ensure();
    void* const thread = PyEval_SaveThread();
    run(0, 1);
    hook();
    PyEval_RestoreThread(thread);
    PyGILState_Release(state);
  }).join();
}
"""


class HostWork(Observer):
    def counted(self, code, *more):
        """What a dry run counted of the host before each mark of its thread: operations, nodes, functions, builtins, bytes."""
        entries, said = self.entries(code, *more)
        counts, out, mark, work = [0] * 5, [], 17, 20  # Kind::mark, Kind::host_work
        for kind, payload in entries:
            if kind == work:
                counts = [a + b for a, b in zip(counts, struct.unpack_from("<4IQ", payload))]
            elif kind == mark:
                out.append(tuple(counts))
                counts = [0] * 5
        return out, said

    def torch(self):
        """A library that asks for profilers and takes memory of the host as PyTorch does."""
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        source, torch = os.path.join(folder, "torch.cpp"), os.path.join(folder, "libtorch_cpu.so")
        with open(source, "w") as f:
            f.write(TORCH)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", torch], check=True)
        return torch

    def test_what_python_calls_is_counted_without_the_observers_own(self):
        own = self.folder({"headroom_dry/own.py": "def beside(f):\n    for _ in range(1000):\n        f()\n"})
        code = """
            import importlib.util, sys
            from headroom_dry import library
            spec = importlib.util.spec_from_file_location("own", sys.argv[-1] if len(sys.argv) > 1 else FILE)
            own = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(own)
            def f():
                return len("word")
            def raises():
                raise ValueError
            def both():
                for _ in range(40):
                    f()
                own.beside(f)
                try:
                    own.beside(raises)
                except ValueError:
                    pass
                for _ in range(10):
                    f()
            library.count_calls()
            library.mark("begin")
            both()
            library.mark("end")
            """.replace("FILE", repr(os.path.join(own, "headroom_dry", "own.py")))
        first, _ = self.counted(code)
        self.assertEqual(self.counted(code)[0], first)
        operations, nodes, functions, builtins, _ = first[-1]
        self.assertEqual((operations, nodes), (0, 0))
        self.assertEqual(functions, 1 + 50, "both and f; what the observer's file calls is not the program's")
        self.assertTrue(50 <= builtins < 60, builtins)

    def test_threads_of_autograd_are_counted_as_the_others(self):
        """What the program's hooks call counts there, and what the observer's kernels do does not."""
        own = self.folder({"headroom_dry/own.py": "def kernel(torch, f):\n    torch.run(70, 0)\n    for _ in range(100):\n        f()\n"})
        code = f"""
            import ctypes, importlib.util
            from headroom_dry import library
            spec = importlib.util.spec_from_file_location("own", {os.path.join(own, "headroom_dry", "own.py")!r})
            own = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(own)
            torch = ctypes.CDLL({self.torch()!r})
            def f():
                return len("word")
            def hook():
                library.mark("begin")
                for _ in range(40):
                    f()
                own.kernel(torch, f)
                torch.run(3, 0)
                library.mark("end")
            library.count_calls()
            torch.backward(ctypes.CFUNCTYPE(None)(hook))
            """
        operations, nodes, functions, _, _ = self.counted(code)[0][-1]
        self.assertEqual((operations, nodes, functions), (3, 0, 40))

    def test_operations_and_nodes_are_counted_and_profilers_get_their_answer(self):
        torch = self.torch()
        code = f"""
            import ctypes
            from headroom_dry import library
            torch = ctypes.CDLL({torch!r})
            library.mark("begin")
            print(torch.run(30, 20))
            library.mark("end")
            """
        counts, said = self.counted(code)
        self.assertEqual(said, [str(601 + 20 * 9)])
        self.assertEqual((*counts[-1][:2], counts[-1][4]), (30, 20, 600))


if __name__ == "__main__":
    unittest.main()
