"""The observer and the end of a program: what is still sent, how long a program goes on after enough steps, and what it saves then."""

import os
import textwrap
import unittest

from observer_cases import Observer


class End(Observer):
    def test_what_the_observer_sends_at_the_end_waits_for_nobody(self):
        code = """
            import atexit, time
            from headroom_dry import library, steps
            library.at_end(lambda: print("sent"))
            library.at_end(lambda: 1 / 0)
            atexit.register(lambda: time.sleep(60))
            steps.PATIENCE_S = 0.2
            steps.end("enough", 0)
            """
        lines = self.run_python(textwrap.dedent(code))
        self.assertEqual(lines[0], "mark end|enough|0")
        self.assertRegex(lines[1], r"^mark open\|the observer's .* failed at the end \(ZeroDivisionError: .*it may need more\|1$")
        self.assertEqual(lines[2:], ["sent"])
        once = "from headroom_dry import library; library.at_end(lambda: print('sent'))"
        self.assertEqual(self.run_python(once), ["sent"])
        hard = "import os; from headroom_dry import library; library.at_end(lambda: print('sent', os.getpid() == p, flush=True)); p = os.getpid()\n"
        self.assertEqual(self.run_python(hard + "os._exit(0)"), ["sent True"])
        self.assertEqual(self.run_python(hard + "import atexit; atexit.register(lambda: os._exit(0))"), ["sent True"])
        self.assertEqual(self.run_python(hard + "if os.fork() == 0: os._exit(0)\nos.wait(); os._exit(status=0)"), ["sent True"])

    def test_what_is_sent_before_os_exit_may_take_long_but_not_wait_long(self):
        begin = "import os, time\nfrom headroom_dry import library\nlibrary.EXIT_PATIENCE_S = 0.2\n"
        busy = "library.at_end(lambda: print([time.thread_time() > 1.5 for _ in iter(lambda: time.thread_time() > 1.5, True)] and 'sent', flush=True))\n"
        self.assertEqual(self.run_python(begin + busy + "os._exit(0)"), ["sent"])
        self.assertEqual(self.run_python(begin + "library.at_end(lambda: time.sleep(60))\nos._exit(0)"),
                         ["mark open|what the observer had to send at the program's end waited for a lock: it may need more|1"])

    def test_a_program_goes_on_for_a_while_after_enough_steps(self):
        begin = """
            import os, sys, time
            from headroom_dry import rest, steps
            rest.BUSY_S = rest.WAITING_S = rest.GRACE_S = 0.2
            sys.excepthook = lambda kind, *more: print("shown", kind.__name__, flush=True)
            rest.begin("enough", steps.end, alone=False)
            """
        settled, ended = "mark settled|enough|0", "mark end|enough|0"

        def said(code):
            return self.run_python(textwrap.dedent(begin) + code)
        self.assertEqual(said("print('evaluated')"), [settled, "evaluated"])
        self.assertEqual(said("import atexit\natexit.register(print, 'left')\nwhile True: pass"), [settled, ended, "left"])
        self.assertEqual(said("time.sleep(60)"), [settled, ended])
        self.assertEqual(said("raise ValueError('no file')"),
                         [settled, "mark note|after its steps agreed, it failed here (ValueError: no file)|0", ended])
        self.assertEqual(said("raise RuntimeError('CUDA out of memory')"), [settled, "shown RuntimeError"])
        self.assertEqual(said("steps.end('train.py:3 waits', 1)"), [settled, "mark note|after its steps agreed, train.py:3 waits|0", ended])
        self.assertEqual(said("print([rest.is_long() for _ in range(10)].count(True))"), [settled, "1"])

    def test_how_far_a_program_goes_on_follows_from_its_work_and_not_from_the_time(self):
        begin = """
            import time
            from headroom_dry import library, rest, steps
            given = 100000
            library.work = lambda: given
            rest.GRACE_S = 0.2
            rest.begin("enough", steps.end, alone=False)

            def step(more, seconds):
                global given
                given += more
                time.sleep(seconds)
                return rest.is_long()
            """
        settled, ended = "mark settled|enough|0", "mark end|enough|0"
        for seconds in 0, 0.5:
            steps = f"print([step(9000, {seconds}) for _ in range(4)])"
            self.assertEqual(self.run_python(textwrap.dedent(begin) + steps), [settled, "[False, False, True, True]"], f"{seconds} s a step")
        self.assertEqual(self.run_python(textwrap.dedent(begin) + "given += 49000\ntime.sleep(0.5)\nprint('evaluated')"), [settled, "evaluated"])
        self.assertEqual(self.run_python(textwrap.dedent(begin) + "given += 50000\ntime.sleep(60)"), [settled, ended])

    def test_what_is_saved_after_enough_steps_is_written_nowhere(self):
        code = """
            import sys, types
            from headroom_dry import rest, steps
            theirs, user = types.ModuleType("safetensors.torch"), types.ModuleType("user")
            theirs.save_file = user.write = lambda tensors, name: print("saved", name)
            sys.modules.update({"safetensors.torch": theirs, "user": user})
            save = rest.save(lambda obj, f: print("saved", f))
            save(1, "a"), user.write(1, "b")
            rest.begin("enough", steps.end, alone=True)
            save(1, "a"), user.write(1, "b"), theirs.save_file(1, "c"), save(1, 7)
            """
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["saved a", "saved b", "mark settled|enough|0", f"saved {os.devnull}", "saved 7"])


if __name__ == "__main__":
    unittest.main()
