"""Programs in processes of their own with the observer's files before them and a library that prints its marks; PyTorch is not needed."""

import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest

SOURCE = os.environ["HEADROOM_SOURCE_DIR"]
OBSERVER = os.path.join(SOURCE, "src", "dry", "observer")

DOORS = """
#include <cstdio>
#include <cstdint>
extern "C" int headroom_dry_version() { return 1; }
extern "C" void headroom_dry_mark(const char* what, const char* text, std::int64_t value) { std::printf("mark %s|%s|%ld\\n", what, text, long(value)); std::fflush(stdout); }
"""

LIBRARY = os.environ.get("HEADROOM_DRY_LIBRARY", "")


class Observer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.doors = os.path.join(cls.scratch.name, "doors.so")
        source = os.path.join(cls.scratch.name, "doors.cpp")
        with open(source, "w") as f:
            f.write(DOORS)
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", source, "-o", cls.doors], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def folder(self, files):
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as f:
                f.write(textwrap.dedent(text))
        return folder

    def run_python(self, code, *more, dry=True, **environment):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([OBSERVER, *more]), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        if dry:
            env["LD_PRELOAD"] = self.doors
        done = subprocess.run([sys.executable, "-u", "-c", code], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout.split("\n")[:-1]

    def entries(self, code, *more):
        """The record of a dry run with the real library, as (kind, payload), and what the program printed."""
        if not LIBRARY:
            self.skipTest("this build has no libheadroom_dry.so")
        record = tempfile.mkdtemp(dir=self.scratch.name)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([OBSERVER, *more]), "PYTHONDONTWRITEBYTECODE": "1", "LD_PRELOAD": LIBRARY, "HEADROOM_DRY_FOLDER": record}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        with open(os.path.join(record, os.listdir(record)[0]), "rb") as f:
            data = f.read()
        at, out = struct.unpack_from("<I", data, 12)[0], []
        while at + 16 <= len(data):
            kind, words = struct.unpack_from("<HH", data, at)
            if not kind:
                break
            out.append((kind, data[at + 16:at + words * 8]))
            at += words * 8
        return out, done.stdout.split()
