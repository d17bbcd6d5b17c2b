"""The notebook of examples runs, cell by cell. Exit code 77 says: skipped, and why; without transformers its last cells are left out."""

import importlib.util
import json
import os
import sys
import unittest

NOTEBOOK = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "forecast.ipynb")
MISSING = [name for name in ("numpy", "pandas", "matplotlib") if importlib.util.find_spec(name) is None]
if MISSING:
    print(f"skipped: {' and '.join(MISSING)} are not installed")
    sys.exit(77)
os.environ["MPLBACKEND"] = "agg"


class NotebookTest(unittest.TestCase):
    def test_every_cell(self):
        with open(NOTEBOOK, encoding="utf-8") as file:
            cells = [c for c in json.load(file)["cells"] if c["cell_type"] == "code"]
        self.assertTrue(all(c["outputs"] for c in cells), "a cell was never run")
        pictures = sum("image/png" in o.get("data", {}) for c in cells for o in c["outputs"])
        self.assertGreaterEqual(pictures, 4)
        names = {}
        for c in cells:
            source = "".join(c["source"])
            if "import transformers" in source and importlib.util.find_spec("transformers") is None:
                print("the cells from transformers on were not run: it is not installed")
                break
            exec(compile(source, "a cell", "exec"), names)  # noqa: S102


if __name__ == "__main__":
    unittest.main()
