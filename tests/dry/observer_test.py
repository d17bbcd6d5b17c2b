"""The observer's files without PyTorch: it stays out of the way, hands on to another sitecustomize, and begins when `torch` is imported."""

import textwrap
import unittest

from observer_cases import Observer


class Begin(Observer):
    def test_another_sitecustomize_runs(self):
        theirs = self.folder({"sitecustomize.py": "print('theirs', __name__)\nword = 3\n"})
        self.assertEqual(self.run_python("import sitecustomize; print(sitecustomize.word)", theirs), ["theirs sitecustomize", "3"])

    def test_a_program_without_torch_sees_nothing_of_it(self):
        self.assertEqual(self.run_python("import sys; print([m for m in sys.modules if m.startswith('torch')])"), ["[]"])

    def test_a_run_that_is_not_dry_has_no_observer(self):
        torch = self.folder({"torch/__init__.py": "", "torch/version.py": "cuda = None\n"})
        code = "import sys, torch; print([type(f).__name__ for f in sys.meta_path if type(f).__name__ == 'AfterImport'])"
        self.assertEqual(self.run_python(code, torch, dry=False), ["[]"])

    def test_a_torch_of_the_cpu_is_told(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '2.9.0+cpu'\n", "torch/version.py": "cuda = None\n"})
        self.assertEqual(self.run_python("import torch; print('trains on the CPU')", torch), ["mark torch|2.9.0+cpu|0"])
        lines = self.run_python("import torch; print(torch.__version__)", torch, HEADROOM_DRY_VALUES="0")
        self.assertEqual(lines, ["mark torch|2.9.0+cpu|0", "2.9.0+cpu"])

    def test_a_question_whether_torch_is_there_is_no_import(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n"})
        code = "import importlib.util as u; print(u.find_spec('torch').name, u.find_spec('torch').name); import torch; print(torch.__version__)"
        self.assertEqual(self.run_python(code, torch, HEADROOM_DRY_VALUES="0"), ["torch torch", "mark torch|9.0|0", "9.0"])

    def test_an_import_that_fails_fails_as_it_did(self):
        torch = self.folder({"torch/__init__.py": "raise ImportError('broken here')\n"})
        code = "try:\n    import torch\nexcept ImportError as e:\n    print(e)"
        self.assertEqual(self.run_python(code, torch), ["broken here"])
        is_there = "import importlib.util; print(importlib.util.find_spec('torch') is None)"
        self.assertEqual(self.run_python(is_there), self.run_python(is_there, dry=False))

    def test_another_torch_than_expected_goes_on_without_observer(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = '99.0'\n"})
        lines = self.run_python("import torch; print('goes on')", torch)
        self.assertEqual(lines[0], "mark torch|9.0|1")
        self.assertTrue(lines[1].startswith("mark note|the observer could not begin with torch: "), lines)
        self.assertEqual(lines[2], "goes on")

    def test_a_version_that_is_too_old_is_said(self):
        for version, said in ("2.3.1+cu121", 1), ("1.13.1", 1), ("2.4.0", 0), ("2.10.0+cu128", 0), ("3.0a0+git12", 0), ("mine", 0):
            torch = self.folder({"torch/__init__.py": f"from . import version\n__version__ = '{version}'\n", "torch/version.py": "cuda = '12.1'\n"})
            notes = [line for line in self.run_python("import torch", torch) if "is older than 2.4" in line]
            self.assertEqual(len(notes), said, version)

    def torch_of(self, version):
        files = {"torch/__init__.py": "", "torch/version.py": "cuda = '13.0'\n"}
        if version:
            files[f"torch-{version}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        return self.folder(files)

    def test_settings_are_tried_where_this_version_reads_them(self):
        older, newer = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
        own, tried = "expandable_segments:True", "max_split_size_mb:64"
        both = f"{own},{tried}"
        for version, given, expected in (("2.8.0", {newer: own}, [tried, own]), ("2.9.0+cu128", {newer: own}, [None, both]), ("2.8.0", {older: own}, [both, None]),
                                         ("2.11.0", {}, [tried, None]), ("2.11.0", {older: own, newer: own}, [both, both]), (None, {newer: own}, [None, both])):
            code = f"import os, torch; print([os.environ.get(name) for name in ({older!r}, {newer!r})])"
            with self.subTest(version=version, given=given):
                said = self.run_python(code, self.torch_of(version), HEADROOM_DRY_ALLOCATOR=tried, **given)
                self.assertEqual(said[-1], str(expected))

    def test_a_limit_that_this_version_does_not_read_is_not_said(self):
        for version, says in (("2.8.0", False), ("2.9.0", True)):
            said = self.run_python("import torch", self.torch_of(version), PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.5")
            self.assertEqual(any(line.startswith("mark fraction|PYTORCH_ALLOC_CONF") for line in said), says, said)

    def test_a_tensor_without_memory_is_not_asked_for_its_address(self):
        code = textwrap.dedent("""
            from headroom_dry.floats import Floats
            class Fake:  # as a FakeTensor of PyTorch's
                requires_grad, dtype, layout = False, type("", (), {"is_floating_point": True}), "strided"
                def __init__(self, n): self.n = n
                def numel(self): return self.n
                def data_ptr(self): print("was asked"); return 0
                def storage_offset(self): return 0
                def element_size(self): return 4
            class Plain(Fake): pass
            floats = Floats()
            floats.plain, floats.torch = {Plain}, type("", (), {"strided": "strided"})
            sparse = Plain(100)
            sparse.layout = "sparse"
            print(floats.is_hopeful(Fake(100)), floats.is_hopeful(sparse), floats.is_out_of_sight(Fake(1 << 19)), floats.is_out_of_sight(Plain(1 << 19)))
        """)
        self.assertEqual(self.run_python(code), ["was asked", "False False True True"])


if __name__ == "__main__":
    unittest.main()
