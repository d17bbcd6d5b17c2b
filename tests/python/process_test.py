"""The package in a process: threads, forks, the import and the end of the interpreter. Exit code 77 says: skipped, and why."""

import os
import signal
import subprocess
import sys
import threading
import unittest

from attention_cases import attend, inputs

import gpu_headroom as hr
import numpy as np


def child_result(body):
    """What a forked child's `body` returned, as its exit code; a child that hangs is killed after 30 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        code = 99
        try:
            code = body()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def in_new_interpreter(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


class ProcessTest(unittest.TestCase):
    def test_one_object_serves_many_threads(self):
        q, k, v, d_o = inputs(len_q=128, len_k=128)
        attention = hr.Attention(q.shape, k.shape, mask="causal", variant="plain", context=hr.Context(threads=1))
        want = attend(q, k, v, d_o, mask="causal", variant="plain")
        wrong = []

        def work(number):
            for _ in range(15):
                scaled = [x * np.float32(number + 1) for x in (v, d_o)]
                r = attention.forward(q, k, scaled[0])
                _, _, dv = r.backward(scaled[1])
                if not np.allclose(dv, want[4] * np.float32(number + 1), rtol=1e-5, atol=1e-5):
                    wrong.append(number)
                if not np.allclose(r.o, want[0] * np.float32(number + 1), rtol=1e-5, atol=1e-5):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_a_forked_child_goes_on(self):
        q, k, v, d_o = inputs()
        want = attend(q, k, v, d_o)

        def body():
            got = attend(q, k, v, d_o)
            return 0 if all(np.array_equal(g, w) for g, w in zip(got, want)) else 1

        self.assertEqual(child_result(body), 0)
        self.assertEqual(child_result(lambda: child_result(body)), 0, "a grandchild")

    def test_the_end_of_the_interpreter_is_quiet(self):
        ended = in_new_interpreter(
            "import gpu_headroom as hr, numpy as np, threading, sys\n"
            "x = np.ones((1, 8, 1, 8), np.float32)\n"
            "c = hr.Context(threads=2)\n"
            "a = hr.Attention(x.shape, x.shape, context=c)\n"
            "r = a.forward(x, x, x)\n"
            "class Loop: pass\n"
            "loop = Loop(); loop.self, loop.c, loop.r = loop, c, r\n"
            "sys.modules['kept'] = loop\n"
            "def forever():\n"
            "    while True: a.forward(x, x, x)\n"
            "threading.Thread(target=forever, daemon=True).start()\n"
            "hr.attention_forward(x, x, x)\n"
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_ctrl_c_ends_a_long_call(self):
        code = (
            "import gpu_headroom as hr, numpy as np, signal, sys, threading, time, os\n"
            "x = np.ones((1, 16384, 16, 128), np.float32)\n"
            "c = hr.Context(threads=1)\n"
            "small = np.ones((1, 8, 1, 8), np.float32)\n"
            "{}\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "t = time.monotonic()\n"
            "try:\n"
            "    hr.attention_forward(x, x, x, context=c)\n"
            "except BaseException as e:\n"
            "    print(type(e).__name__, e)\n"
            "print(time.monotonic() - t < 5)\n"
            "print(hr.attention_forward(small, small, small, context=c).o[0, 0, 0, 0])\n"
        )
        raising = "def mine(*_): raise ValueError('mine')\nsignal.signal(signal.SIGINT, mine)"
        for handler, said in (("", "KeyboardInterrupt "), (raising, "ValueError mine")):
            ended = in_new_interpreter(code.format(handler))
            self.assertEqual((ended.stdout.splitlines(), ended.stderr), ([said, "True", "1.0"], ""))
        quiet = "signal.signal(signal.SIGINT, lambda *_: print('heard', time.monotonic() - t < 5))\nx = x[:, :3072]"
        ended = in_new_interpreter(code.format(quiet))
        self.assertEqual(ended.stdout.splitlines()[0], "heard True", ended.stderr)
        self.assertEqual((ended.stdout.splitlines()[-1], ended.stderr), ("1.0", ""), "a handler that returns ends nothing")

    def test_a_library_that_is_another_is_named(self):
        import ctypes.util

        for name, words in ((ctypes.util.find_library("z") or "libz.so.1", "is not libheadroom"), ("/nowhere/lib.so", "cannot be loaded")):
            ended = in_new_interpreter("import gpu_headroom as hr; hr.version()", HEADROOM_LIBRARY=name)
            self.assertIn("ImportError", ended.stderr)
            self.assertIn(words, ended.stderr)

    def test_the_import_is_quick_and_brings_no_numpy(self):
        ended = in_new_interpreter(
            "import time; t = time.perf_counter(); import gpu_headroom as hr; hr.version(); t = time.perf_counter() - t\n"
            "import sys; print('numpy' in sys.modules, 'torch' in sys.modules, t < 0.5)"
        )
        self.assertEqual(ended.stdout.strip(), "False False True", ended.stderr)

    def test_every_file_is_python_3_9(self):
        import ast

        folder = os.path.dirname(hr.__file__)
        names = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".py")]
        self.assertIn(os.path.join(folder, "torch", "operators.py"), names)
        for name in names:
            with open(name, encoding="utf-8") as file:
                ast.parse(file.read(), name, feature_version=(3, 9))
        with self.assertRaises(SyntaxError):  # that the check can fail
            ast.parse("match x:\n  case 1: pass", feature_version=(3, 9))


if __name__ == "__main__":
    unittest.main()
