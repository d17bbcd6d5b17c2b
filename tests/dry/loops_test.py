"""Loops of a program that wait for a value of the card."""

import os
import sys
import tempfile
import unittest
import warnings

from dry_program import OBSERVER, Dry


class Loops(Dry):
    def test_a_source_that_python_warns_of_is_read_without_a_word(self):
        sys.path.insert(0, OBSERVER)
        from headroom_dry import branches, loops

        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("error")
            path = os.path.join(folder, "program.py")
            with open(path, "w") as f:
                f.write('while x.any():\n    print("\\d")\nif m.any():\n    y = x[m]\n')
            self.assertEqual((loops.kind_of(path, 1), branches._works_on_any(path, 3, lambda call: None)), (loops.ENDLESS, True))

    def test_a_loop_without_steps_sees_a_float_fall_and_rise(self):
        lines, marks = self.dry("""
            import torch
            x = torch.randn(8, device="cuda")
            def turns(goes_on):
                n = 0
                while goes_on(x.square().mean()):
                    n += 1
                return n
            print(turns(lambda v: v.item() > 1e-6), turns(lambda v: v.item() < 0.99), turns(lambda v: v > 1e-6))
        """)
        self.assertEqual([int(n) < 1200 for n in lines[0].split()], [True] * 3, lines)
        self.assertEqual([m for m in marks if m[0] == "end"], [])

    def test_a_tensor_that_is_written_as_text_is_no_loop_that_waits(self):
        lines, _ = self.dry("""
            import torch
            x = torch.randn(1120, device="cuda").square().exp()
            print([len(f"{x[:560]} {x[560:]}") > 1000 and bool((x.max() <= 5) & (x.min() >= -5)) for _ in range(2)])
        """)
        self.assertEqual(lines, ["[True, True]"])

    def test_a_loop_that_waits_ends_with_its_line(self):
        lines, marks = self.dry("""
            import torch
            def wait(x):
                while x.argmax().item() != 3:
                    x = x + 1
            wait(torch.randn(8, device="cuda"))
        """, code=1, HEADROOM_DRY_LOOP="50")
        end = [m for m in marks if m[0] == "end"]
        self.assertEqual(len(end), 1)
        self.assertRegex(end[0][1], r"program.py:4 waits for a value of the card to change.*read 50 times")

    def test_a_loop_that_only_an_unknown_integer_ends_is_short(self):
        ends = {
            "while counter.item() < 5:\n    counter += (x > 0.5).sum()\n": ("program.py:4", 1500, 300),
            "def done():\n    return counter.item() > 5\nwhile not done():\n    pass\n": ("program.py:6", 1500, 300),  # the loop's line
            "import time\nwhile not counter.item():\n    time.sleep(0.02)\n": ("program.py:5", 200, 3),  # long
            "import time\nn = 0\nwhile n < 9999:\n    time.sleep(0.02)\n    if counter.item(): break\n": ("program.py:8", 200, 3),  # nothing was launched
        }
        for loop, (line, times, seconds) in ends.items():
            _, marks = self.dry("import torch\ncounter = torch.empty(1, dtype=torch.int64, device='cuda')\nx = torch.rand(9, device='cuda')\n" + loop, code=1,
                                HEADROOM_DRY_LOOP_S=str(seconds))
            end = [m[1] for m in marks if m[0] == "end"]
            self.assertEqual(len(end), 1, (loop, marks[-3:]))
            self.assertIn(line + " waits for a value", end[0])
            self.assertRegex(end[0], f"read {times} times")
            self.assertIn((line, 64), [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "loop"])

    def test_a_loop_goes_on_while_any_of_an_unknown_mask_may_be_true(self):
        program = """
            import torch
            x, n = torch.randn(8, device="cuda"), [0, 0, 0]
            while ((x < 0.5) & (torch.full_like(x, n[0]) < 6)).any():
                n[0] += 1
            while (x < 0.5).any():
                n[1] += 1
                assert not (x > 9).any()
            while (x < 0.5).any() and n[2] < 40:
                n[2] += 1
            print(n)
        """
        lines, marks = self.dry(program)
        self.assertEqual(lines, ["[6, 16, 40]"])
        self.assertEqual([(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"], [("program.py:4", 1)])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], ["[0, 0, 0]"])

    def test_loops_that_end_by_themselves_run_on(self):
        loops = [
            "for _ in range(3000):\n    n += counter.item() + 1\n",
            "while n < 3000:\n    n += counter.item() + 1\n",
            "while counter.item() == 0 and n < 3000:\n    n += 1\n",
            "while counter.item() == 0:\n    n += 1\n    if n == 3000:\n        break\n",
            "def one():\n    return counter.item() + 1\nn = sum(one() for _ in range(3000))\n",
        ]
        for loop in loops:
            lines, marks = self.dry("import torch\ncounter = torch.empty(1, dtype=torch.int64, device='cuda')\nn = 0\n" + loop + "print(n)\n",
                                    HEADROOM_DRY_LOOP="10000", HEADROOM_DRY_LOOP_S="1000")
            self.assertEqual((lines, [m for m in marks if m[0] == "end"]), (["3000"], []), loop)

    def test_a_loop_of_a_package_that_compares_an_unknown_number_ends_after_some_turns(self):
        """As a solver of differential equations, each of whose steps may be kept for the backward pass; whether it waits for a large number or a small one."""
        with tempfile.TemporaryDirectory() as folder:
            packages = os.path.join(folder, "site-packages")
            os.mkdir(packages)
            with open(os.path.join(packages, "of_a_solver.py"), "w") as f:
                f.write("def solve(t, dt, end):\n    turns = 0\n    while end > t:\n        t, turns = t + dt, turns + 1\n    return turns\n\n\n"
                        "def settle(error, least):\n    turns = 0\n    while error > least:\n        error, turns = error * 0.5, turns + 1\n    return turns\n")
            lines, marks = self.dry(f"""
                import sys
                sys.path.insert(0, {packages!r})
                import torch
                from of_a_solver import settle, solve
                t, dt = torch.zeros([], device="cuda"), torch.randn(99, device="cuda").norm()
                print([solve(t, dt, 1.0) for _ in range(3)], [settle(dt * 1.0, 1e-3) for _ in range(3)])
            """)
        self.assertEqual((lines, [m for m in marks if m[0] == "end"]), (["[17, 18, 18] [17, 17, 17]"], []))

    def test_a_for_that_a_number_may_leave_has_all_its_turns_where_numbers_fall_or_rise(self):
        program = """
            import torch
            x, kept = torch.randn(9, device="cuda"), []
            for _ in range(2500):
                kept.append(x + 1)
                if x.norm().item() < 1e-6 * x.mean().item():
                    break
            print(len(kept))
        """
        lines, marks = self.dry(program)
        self.assertEqual((lines, [m[1].rsplit(":", 1)[1] for m in marks if m[0] == "routed"]), (["550"], ["6"]))
        for way in "falls", "rises":
            self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING=f"random+{way}")[0], ["2500"], way)


if __name__ == "__main__":
    unittest.main()
