"""The observer and kernels that PyTorch, Triton or cuDNN choose by their times: which one a dry run takes, and what it says of it."""

import textwrap
import unittest

from observer_cases import Observer


class Tuning(Observer):
    def test_pytorchs_own_kernels_are_chosen_where_only_a_card_knows_times(self):
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/runtime/__init__.py": "",
                                "torch/_inductor/select_algorithm.py": """
            class ExternKernelCaller: pass
            class TritonTemplateCaller: pass
            class AlgorithmSelectorCache:
                def __call__(self, name, choices):
                    return min(self.make_benchmark_fn()(choices).items(), key=lambda c: c[1])[0], len(choices)
                @classmethod
                def make_benchmark_fn(cls):
                    return lambda choices: {c: float("inf") if hasattr(c, "fails") else -float(i) for i, c in enumerate(choices)}
            """, "torch/_inductor/runtime/coordinate_descent_tuner.py": """
            class CoordescTuner:
                def call_func(self, func, config): return func(config)
                def autotune(self, func, config, timing=None): return min((func(c), c) for c in range(config, 9))[1]
            """, "torch/_inductor/runtime/autotune_cache.py": """
            class AutotuneCache:
                def read_best(self, meta, configs): return configs[0]
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor import select_algorithm as s
            from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner
            own, failing, other = s.ExternKernelCaller(), s.ExternKernelCaller(), [s.TritonTemplateCaller() for _ in range(20)]
            failing.fails = True
            cache = s.AlgorithmSelectorCache()
            for choices in ([*other, own], [own], other, [*other, failing, own]):
                best, run = cache("mm", choices)
                print(best is own or best is other[0], run)
            tried = []
            print(CoordescTuner().autotune(tried.append, 4), tried, CoordescTuner().autotune(tried.append, 4, 1.0), tried)
            from torch._inductor.runtime.autotune_cache import AutotuneCache
            print(AutotuneCache().read_best({}, [3, 4]))  # what an earlier run chose is measured again, in memory as on a card
            """
        lines = self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0")[1:]
        self.assertEqual(lines[0], "mark tuned|torch.compile would choose kernels by their times on the card; PyTorch's own were kept|0")
        self.assertEqual(lines[1:], ["True 2", "True 1", "True 2", "True 3", "4 [4] 4 [4]", "None"])

    def test_of_a_kernels_settings_the_first_that_can_run_is_measured(self):
        triton = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n", "triton/__init__.py": "", "triton/runtime/__init__.py": "",
                              "triton/runtime/autotuner.py": """
            class Autotuner:
                def __init__(self, graph=False): self.seen, self.cache, self.graph = [], {}, graph
                def _bench(self, x, config):
                    self.seen.append(config)
                    times = [float("inf")] * 3 if config > 90 else [5.0, 4.0, 6.0]
                    return times[0] if self.graph else times
                def check_disk_cache(self, tuning_key, configs, bench_fn): raise OSError("read or written")
                def run(self, x):
                    def benchmark():
                        times = {c: self._bench(x, config=c) for c in (99, 98, 3, 2, 1)}
                        self.cache[x] = min(times, key=times.get)
                    if x not in self.cache and self.check_disk_cache(x, (), benchmark):
                        raise ValueError("no time of a card is kept")
                    return self.cache[x]
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from triton.runtime.autotuner import Autotuner
            for kernel in (Autotuner(), Autotuner(graph=True)):  # the second as in Triton 3.0 and 3.1
                for x in (7, 7, 8):
                    print(kernel.run(x), kernel.seen)
            """
        lines = self.run_python(textwrap.dedent(code), triton, HEADROOM_DRY_VALUES="0")
        self.assertEqual(lines, (["3 [99, 98, 3]"] * 2 + ["3 [99, 98, 3, 99, 98, 3]"]) * 2)

    def test_products_that_inductor_may_pad_are_guessed(self):
        """A memo in a file, as inductor's, would hand one run's choice to the next."""
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/fx_passes/__init__.py": "",
                                "torch/_inductor/fx_passes/pad_mm.py": """
            def get_cached_should_pad(key): raise OSError
            set_cached_should_pad = get_cached_base_mm_benchmark_time = set_cached_base_mm_benchmark_time = get_cached_should_pad
            def is_padded_faster(key, ori_time, pad_time): return ori_time > 1.1 * pad_time
            def should_pad(*args): return _should_pad(*args)
            def _should_pad(match, mat1, mat2, op, input=None):
                known = get_cached_should_pad(str((mat1.shape, mat2.shape)))
                return is_padded_faster(str((mat1.shape, mat2.shape)), 1.0, 1.0) if known is None else known
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor.fx_passes import pad_mm
            class Matrix:
                def __init__(self, *shape, across=False): self.shape, self.across = shape, across
                def stride(self): return (1, self.shape[0]) if self.across else (self.shape[1], 1)
                def element_size(self): return 2
            class Varies:
                def __init__(self, hint): self.node = __import__('types').SimpleNamespace(hint=hint)
                def __repr__(self): return "n"
            large, small = (Matrix(2994, 480), Matrix(480, 19001)), (Matrix(4596, 320), Matrix(320, 1111))
            weights, even = (Matrix(320, 4596, across=True), Matrix(4596, 320)), (Matrix(320, 4600, across=True), Matrix(4600, 320))
            varying = Matrix(320, Varies(4596), across=True), Matrix(Varies(4596), 320)
            for _ in range(2):
                print([pad_mm.should_pad(None, *product, "mm") for product in (large, small, weights, even, varying)])
            """
        how = {"random": [True, False, True, False, False], "balanced": [False] * 5, "worst": [True] * 5}
        for routing, choices in how.items():
            lines = self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0", HEADROOM_DRY_ROUTING=routing)[1:]
            self.assertRegex(lines[0], r"^mark routed\|.*\|3$")
            self.assertEqual(lines[1:], [str(choices), str(choices)])

    def test_compile_workers_that_do_not_end_are_not_waited_for(self):
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/compile_worker/__init__.py": "",
                                "torch/_inductor/compile_worker/subproc_pool.py": """
            import subprocess, sys
            class SubprocPool:
                def __init__(self, seconds):
                    self.process = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])
                def shutdown(self):
                    self.process.wait(300)
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor.compile_worker.subproc_pool import SubprocPool
            for seconds in 0, 60:
                pool = SubprocPool(seconds)
                tuning.WORKERS_END_S = 30 if seconds == 0 else 0.1
                pool.shutdown()
                print(pool.process.returncode)
            """
        self.assertEqual(self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0")[1:], ["0", "-9"])

    def test_convolutions_that_are_chosen_by_their_times_are_said(self):
        code = """
            import sys, types
            from headroom_dry import tuning
            class Setting:
                def __init__(self, setter): self.setter = setter
                def __set__(self, _, value): self.setter(value)
            said = []
            c = types.SimpleNamespace(_set_cudnn_benchmark=said.append)
            class Module:
                benchmark = Setting(c._set_cudnn_benchmark)
            torch = types.SimpleNamespace(_C=c, backends=types.SimpleNamespace(cudnn=Module()))
            tuning.begin(lambda *_: None, torch)
            torch.backends.cudnn.benchmark = False
            print(said)
            torch.backends.cudnn.benchmark = True
            c._set_cudnn_benchmark(True)  # as flags() does
            print(said)
            """
        mark = "mark benchmark|torch.backends.cudnn.benchmark would choose cuDNN's convolutions by their times on the card|0"
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["[False]", mark, mark, "[False, True, True]"])


if __name__ == "__main__":
    unittest.main()
