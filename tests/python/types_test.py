"""mypy --strict and pyright on programs of users (typed/). Exit code 77 says: skipped, and why. Nothing is installed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(HERE, "..", "..", "python")


def programs():
    """Those whose libraries are here: types that are missing would hide an error."""
    needed = {"arrays_user.py": "numpy", "torch_user.py": "torch"}
    here = [name for name, needs in needed.items() if importlib.util.find_spec(needs) and importlib.util.find_spec("typing_extensions")]
    return [os.path.join(HERE, "typed", name) for name in here]


def mypy():
    """How mypy is called, or None. $MYPY names it where it is in an environment of its own."""
    if os.environ.get("MYPY"):
        return [os.environ["MYPY"]]
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    return [shutil.which("mypy")] if shutil.which("mypy") else None


def pyright():
    named = os.environ.get("PYRIGHT") or shutil.which("pyright")
    return [named] if named else None


class TypesTest(unittest.TestCase):
    def check(self, command, **more):
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_mypy_strict(self):
        if mypy() is None:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as cache:
            for program in programs():
                self.check(
                    [*mypy(), "--strict", "--follow-imports=silent", "--python-executable", sys.executable, "--cache-dir", cache, program],
                    env={**os.environ, "MYPYPATH": PACKAGES},
                )

    def test_pyright(self):
        if pyright() is None:
            self.skipTest("pyright is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for program in programs():
                shutil.copy(program, folder)
            with open(os.path.join(folder, "pyrightconfig.json"), "w") as settings:
                json.dump({"extraPaths": [PACKAGES], "typeCheckingMode": "standard", "reportUnnecessaryTypeIgnoreComment": True,
                           "enableTypeIgnoreComments": False}, settings)  # fmt: skip
            self.check([*pyright(), "--pythonpath", sys.executable, "-p", folder])


if __name__ == "__main__":
    if not programs() or (mypy() is None and pyright() is None):
        print("skipped: needs mypy or pyright, and NumPy or torch with typing_extensions")
        sys.exit(77)
    unittest.main()
