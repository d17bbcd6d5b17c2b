"""headroom forecast on a Python function, in a process of its own, without a GPU. Exit code 77: skipped."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

from program_forecasts import ProgramForecasts

import torch


class Function(ProgramForecasts):
    def test_a_function_is_run_in_a_process_of_its_own(self):
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
        from gpu_headroom.torch import forecast

        def step(batch, width=256):
            model = torch.nn.Linear(width, width).cuda()
            model(torch.ones(batch, width, device="cuda")).sum().backward()

        small, large = forecast(step, 1024, device="h100"), forecast(step, 1024, width=1024, device="h100")
        self.assertTrue(small.fits)
        self.assertGreater(large.peak_allocated_bytes, small.peak_allocated_bytes)
        self.assertIn("Fits on NVIDIA H100", str(small))
        with self.assertRaises(RuntimeError):
            forecast(lambda: 1 / 0, device="h100")

    def test_every_argument_of_a_function_that_is_wrong_is_named(self):
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
        from gpu_headroom.torch import forecast

        def step(batch=8, fail=False):
            if fail:
                raise ValueError("its own mistake")
            return torch.ones(batch, 1024, device="cuda")

        def with_steps(steps):
            return step(steps)

        async def later():
            step()

        lock = __import__("threading").Lock()
        for error, names, arguments, keywords in [
            (ValueError, "memory is 24, .* write '24GiB'", [step], {"memory": 24}),
            (ValueError, "memory is 24.0, .* write '24GiB'", [step], {"memory": 24.0}),
            (ValueError, "memory is -1", [step], {"memory": -1}),
            (ValueError, "memory is nan", [step], {"memory": float("nan")}),
            (ValueError, "memory: 'much'", [step], {"memory": "much"}),
            (TypeError, "memory is True", [step], {"memory": True}),
            (TypeError, "memory is \\[1\\]", [step], {"memory": [1]}),
            (TypeError, "device is 0", [step], {"device": 0}),
            (ValueError, "device is 'cpu'", [step], {"device": "cpu"}),
            (ValueError, r"device is torch.device\('cpu'\)", [step], {"device": torch.device("cpu")}),
            (ValueError, "device: there is no 'h1000'", [step], {"device": "h1000"}),
            (TypeError, "steps is 2.5", [step], {"steps": 2.5}),
            (TypeError, "steps is '2'", [step], {"steps": "2"}),
            (ValueError, "steps is -1", [step], {"steps": -1}),
            (TypeError, "function is 'train.py'.*headroom forecast -- python3", ["train.py"], {}),
            (TypeError, "later runs nothing yet", [later], {}),
            (TypeError, "unexpected keyword argument 'devcie'", [step], {"devcie": "h100"}),
            (TypeError, "with_steps.*functools.partial", [with_steps], {"steps": 4}),
            (TypeError, "argument 1 cannot be carried", [step, lock], {}),
            (TypeError, "fail cannot be carried", [step], {"fail": lock}),
        ]:
            with self.subTest(names), self.assertRaisesRegex(error, names):
                forecast(*arguments, **{"device": "h100", **keywords})
        self.assertEqual(forecast(step, device="h100", memory="24GiB").memory_bytes, 24 << 30)
        self.assertEqual(forecast(step, device="h100", memory=24 << 30).memory_bytes, 24 << 30)
        with self.assertRaises(RuntimeError) as failed:
            forecast(step, device="h100", fail=True)
        self.assertIn("its own mistake", str(failed.exception))
        self.assertIn("Traceback", str(failed.exception))

    def test_the_error_of_a_function_names_no_file_that_is_gone(self):
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
        from gpu_headroom.torch import forecast

        def fails():
            torch.ones(1024, device="cuda")
            raise ValueError("its own mistake")

        with self.assertRaisesRegex(RuntimeError, "its own mistake") as failed:
            forecast(fails, device="h100")
        self.assertNotIn("results.db", str(failed.exception))

    def test_a_caller_that_is_killed_hard_leaves_nothing(self):
        python = os.path.join(os.path.dirname(__file__), "..", "..", "python")
        temporary = tempfile.mkdtemp(dir=self.folder.name)
        program = self.file("slow", '#!/bin/sh\necho $$ > "$TMPDIR/pid"\nexec sleep 600\n')
        os.chmod(program, 0o700)
        caller = self.file("caller.py", "from gpu_headroom.torch import forecast\nforecast(print, device='h100')\n")
        env = {**os.environ, "PYTHONPATH": python, "TMPDIR": temporary, "HEADROOM_PROGRAM": program}
        child = subprocess.Popen([sys.executable, caller], env=env)

        def wait(true):
            for _ in range(600):
                if true():
                    return True
                time.sleep(0.1)
            return False

        noted = os.path.join(temporary, "pid")
        self.assertTrue(wait(lambda: os.path.exists(noted) and os.path.getsize(noted)))
        with open(noted) as f:
            pid = int(f.read())
        child.kill()
        child.wait()
        self.assertTrue(wait(lambda: not os.path.exists(f"/proc/{pid}")))
        self.assertTrue(wait(lambda: not [f for f in os.listdir(temporary) if f.startswith("headroom-call-")]))


if __name__ == "__main__":
    unittest.main()
