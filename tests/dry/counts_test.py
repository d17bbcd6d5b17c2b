"""Counts of unknown masks: which lines are told, because a size may follow, and which only measure how good a model is."""

import contextlib
import io
import math
import os
import sys
import tempfile
import unittest
from types import SimpleNamespace as Namespace

from dry_program import OBSERVER, Dry

sys.path.insert(0, OBSERVER)
from headroom_dry import counts, frames, reads, told  # noqa: E402

MASKS, DRAWS, DIFFERENCES = 1, 2, 4


class Anything:
    """Stands for tensors, models and modules. What reads it notes whether that is told, by the source of the program that does."""

    judged, by_line = [], False

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: self.read() if name in ("item", "tolist") else self

    def read(self):
        at = list(frames.asking_frames(sys._getframe(2)))
        if Anything.by_line:  # as before Python 3.11
            at = [Namespace(f_lineno=f.f_lineno, f_lasti=f.f_lasti, f_code=Namespace(
                co_filename=f.f_code.co_filename, co_name=f.f_code.co_name, co_firstlineno=f"line {f.f_code.co_firstlineno}")) for f in at]
        Anything.judged.append(told.is_only_told(at))
        return 6

    def __int__(self):
        return self.read()

    def __float__(self):
        return float(self.read())

    def __bool__(self):
        self.read()
        return False

    def __index__(self):
        return self.read()

    def same(self, *others, **named):
        return self

    __call__ = __getitem__ = __eq__ = __gt__ = __and__ = __invert__ = __add__ = __mul__ = __truediv__ = __rtruediv__ = same
    shape = [4, 4]


class Told(unittest.TestCase):
    def judged(self, program):
        """Of each read of this program, as it is at its place in a line and, once more, by the line alone."""
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
            f.write(program)
        self.addCleanup(os.unlink, f.name)
        names = "mask x y n gt model cache loss mlflow pbar wandb torch"
        judged = []
        for Anything.by_line in False, True:
            Anything.judged = []
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(program, f.name, "exec"), {**{name: Anything() for name in names.split()}, "total": 0, "math": math})
            judged.append(Anything.judged)
        self.assertEqual(judged[0][:1], judged[1][:1], program)
        self.assertLessEqual(judged[1], judged[0], program)  # where its line says less, in doubt
        return judged[0]

    def test_a_size_in_the_statement_or_after_a_quotient_is_not_told(self):
        for program in (
            "total += model(x[:mask.sum().item()]).item()\nprint(total / 3)",
            "cache.update(x[:mask.sum().item()])",
            "print(model(x[:n.item()]).same())",
            "def f():\n    return model(x[:mask.sum().item()]) / 2\nprint(f())",
            "loss = model(x[:, :mask.sum(1).max().item()])\n(loss / 4).backward()",
            "keep = mask.sum().item() / 2\nx[:int(keep)]",
            "ratio = mask.sum().item() / x.shape[0]\nn = int(ratio * x.shape[1])\ntorch.zeros(n)",
            "n = mask.sum().item()\nm = int(n / 10 * 3)\ntorch.zeros(m)",
            "n = mask.sum().item()\ntorch.zeros(math.ceil(n / 8 + 1))",
            "n = mask.sum().item()\nm = math.ceil(n / 8 + 1)",
            "n = mask.sum().item()\nh = n / 2\ntorch.zeros(int(h))",
            "n = mask.sum().item()\nn /= 2\nm = int(n)",
            "n = mask.sum().item()\nm = round(n / 2)",
            "n = mask.sum().item()\nm = n / 2 // 1",
            "def share():\n    return mask.sum().item() / 12\nm = int(share() * 40)",
            "n = mask.sum().item()\nk = math.log(n)",
            "shares = []\nshares.append(mask.sum().item() / 12)\nm = int(shares[0] * 40)",
            "shares = []\nshares.append(mask.sum().item() / 12)\nmodel(shares)",
            "share = mask.sum().item() / 12\nif share > 0.5:\n    y = model(x)",
            "metrics = {'loss': 1.5, 'n': mask.sum().item()}\nprint(metrics)\nm = [0] * metrics['n']",
            "metrics = {'loss': 1.5, 'n': mask.sum().item()}\nlook_at = [metrics]",
            "share = mask.sum().item() / 12\nwhile share > 0.5:\n    share = 0",
        ):
            judged = self.judged(program)
            self.assertTrue(judged and not judged[0], program)

    def test_what_others_may_use_is_not_told(self):
        for program in (
            "class Out: pass\ndef count(out):\n    out.max_len = mask.sum().item()\n    return out\ndef make(o):\n    return torch.zeros(o.max_len)\ncount(Out())",
            "class Out: pass\ndef count(out):\n    out.max_len = mask.sum().item()\n    return out\ncount(Out())",
            "def f():\n    global m\n    m = mask.sum().item()\nf()\ntorch.zeros(m)",
            "def f():\n    m = 0\n    def g():\n        nonlocal m\n        m = mask.sum().item()\n    g()\n    torch.zeros(m)\nf()",
            "def f(st):\n    st['n'] += mask.sum().item()\n    return st\nf({'n': 0})",
            "def f():\n    st = {'n': 0}\n    st['n'] += mask.sum().item()\n    return st\nf()",
            "def f():\n    st = {'n': 0}\n    st['n'] += mask.sum().item()\n    torch.zeros(st['n'])\nf()",
            "class A:\n    def add(self):\n        self.n = mask.sum().item()\n    def get(self):\n        return self.n\na = A()\na.add()\ntorch.zeros(a.get())",
        ):
            judged = self.judged(program)
            self.assertTrue(judged and not judged[0], program)

    def test_what_only_shows_is_told(self):
        for program in (
            "accs = []\naccs.append((x == y).sum().item() / 12)\nprint(sum(accs) / len(accs))",
            "correct = (x == y).sum().item()\ntotal += 1\nprint(round(100 * correct / total, 2))\nprint(float(correct) / total)",
            "n = mask.sum().item()\nmlflow.log_metric('n', n)\npbar.set_postfix({'n': n})\nwandb.log({'n': n / 3})",
            "def evaluate():\n    correct = 0\n    correct += (x == y).sum().item()\n    return 1.5, correct / 12\nloss, share = evaluate()\nprint(loss, f'{share:.2f}')",
            "st = {'n': 0, 'm': 1}\nst['n'] += mask.sum().item()\nprint(st['n'] / 12)\n[0] * st['m']",
            "best = 0\nshare = mask.sum().item() / 12\nif share > best:\n    best = share\n    torch.save(model.state_dict(), 'best')\nprint(share > 0)",
            "share = loss.sum() / (mask\n    .sum()\n    .item())\nshare.backward()",
            "n = mask.sum().item()\nprint(f'{x[n]}')\nhits = y[0, n] + 1\nprint(hits)",
            "seen = {}\nn = mask.sum().item()\nseen[n] = y[n]",
            "metrics = {'loss': 1.5, 'n': mask.sum().item() / 12}\nprint('new best', metrics)\nprint(metrics['n'])\n[0] * int(metrics['loss'])",
        ):
            judged = self.judged(program)
            self.assertTrue(judged and all(judged), (program, judged))

    def test_an_if_that_asks_for_numbers_that_are_not_finite_is_told(self):
        for test in "torch.isnan(loss)", "torch.isnan(loss) or torch.isinf(loss)", "total == 0 and (torch.isnan(loss) or torch.isinf(loss))", \
                "not torch.isfinite(loss).all()", "torch.isnan(loss).any().item()":
            judged = self.judged(f"if {test}:\n    total = 1\n")
            self.assertTrue(judged and all(judged), (test, judged))
        for program in "if mask.any():\n    total = 1", "m = torch.isnan(x).any().item()\nif m:\n    total = 1", "if torch.isnan(x).any().item() + mask.sum().item() > 3:\n    total = 1", \
                "while torch.isnan(x).any():\n    pass":
            self.assertFalse(any(self.judged(program)), program)

    def test_a_source_that_cannot_be_followed_is_no_error_of_the_program(self):
        def judge(frames):
            raise RecursionError
        self.assertEqual([reads.by_source(judge, doubt) for doubt in (True, False)], [True, False])

    def test_a_statement_without_a_read_makes_no_size(self):
        def look():
            sizes.append(counts.is_size(frames.asking_frames(sys._getframe(1))))
            return 6
        for read, is_size in ("int(look())", True), ("look()", False):
            sizes = []
            program = f"n = {read}\nm = [0] * 9\nm[:n]\n"
            with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
                f.write(program)
                f.flush()
                exec(compile(program, f.name, "exec"), {"look": look})
            self.assertEqual(sizes, [is_size], read)


class Counts(Dry):
    def guesses(self, program, **environment):
        lines, marks = self.dry(program, **environment)
        return lines, [(int(m[1].rsplit(":", 1)[1]), m[2]) for m in marks if m[0] == "routed"]

    def test_of_pairs_no_more_are_near_than_are_in_one_group(self):
        program = """
            import torch
            for groups in 12, 96:
                at, group = torch.randn(8 * groups, 3, device="cuda"), torch.repeat_interleave(torch.arange(groups), 8).cuda()
                near = (torch.cdist(at, at) < 0.5) & (group[:, None] == group[None])
                near.fill_diagonal_(False)
                i, j = near.nonzero(as_tuple=True)
                print(len(i), len(at[i] - at[j]), len(((group[:, None] == group[None]) & (torch.cdist(at, at) < 0.5)).nonzero()))
            """
        sizes = {"random": ["336 336 384", "2688 2688 3072"], "balanced": ["0 0 0"] * 2, "worst": ["672 672 768", "5376 5376 6144"]}
        for how, said in sizes.items():
            self.assertEqual(self.guesses(program, HEADROOM_DRY_ROUTING=how), (said, [(7, MASKS)]))

    def test_a_count_that_may_become_a_size_is_told(self):
        for read in "int(mask.sum())", "mask.long().sum().item()", "torch.count_nonzero(mask).item()", "mask.sum(1).max().item()", "mask.cumsum(1)[:, -1].max().item()", \
                "mask.view(4, 4, 64).sum((0, 2)).tolist()[0]", "2 if (mask.sum() > 2) else 1", "mask.any(1).nonzero().shape[0]", "mask.int().clone().sum(1).max().item()", "int(mask.float().sum())", "(mask * 1).sum().item()", "int(mask.float().mean() * 9)":
            lines, told = self.guesses(f"import torch\nmask = torch.randn(64, 16, device='cuda') > 0\nn = {read}\nprint(torch.empty(n).numel() > 0)\n")
            self.assertEqual((lines, told), (["True"], [(3, MASKS)]), read)

    def test_a_count_that_is_only_told_is_none(self):
        program = """
            import torch
            def right(guess, label):
                return (guess == label).sum().item()
            class Meter:
                def __init__(self):
                    self.sum = 0
                def add(self, n):
                    self.sum += n
            guess, label = torch.randn(512, device="cuda"), torch.randn(512, device="cuda")
            correct, total, meter = 0, 0, Meter()
            correct += (guess == label).sum().item()
            total += right(guess, label)
            share = (guess == label).sum().item() / len(label)
            percent = 100.0 * (guess == label).sum().item() / len(label)
            hits = int((guess == label).sum())
            total += hits
            print(f"{hits} {hits / 512:.2f}", "of %d" % hits)
            print(correct / 512 > 0, total / 512 > 0, share + percent > 0)
        """
        lines, told = self.guesses(program)
        self.assertEqual((lines[-1], told), ("True True True", []))
        for use in "torch.empty(total)", "x = total if total else 1", "steps = int(total / 2)", "return_it(total)", "x = [0] * total", "x = total // 2", "x = total % 7":
            lines, told = self.guesses(program.replace("print(correct", f"return_it = print\n            {use}\n            print(correct"))
            self.assertEqual([m for _, m in told], [MASKS], use)
        lines, told = self.guesses("""
            import torch
            best, label = torch.randn(64, 100, device="cuda").topk(5)[1], torch.arange(64, device="cuda")
            right = (best == label[:, None]).sum().item()
            print(f"{right / 64:.0%} of the labels are among the best five", right / 64 < 1)
        """)
        self.assertEqual((lines[0][-4:], told), ("True", []))

    def test_a_package_that_makes_a_size_of_a_count_is_looked_at_itself(self):
        """The program's own line only adds up what it gets from there."""
        folder = os.path.join(self.scratch.name, "site-packages")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "of_a_package.py"), "w") as f:
            f.write("import torch\ndef rows(mask):\n    n = mask.sum().item()\n    return torch.empty(n).numel()\n")
        _, told = self.guesses(f"import sys\nsys.path.insert(0, {folder!r})\nimport torch, of_a_package\ntotal = 0\n"
                               "total += of_a_package.rows(torch.randn(64, device='cuda') > 0)\nprint(total / 3)\n")
        self.assertEqual(told, [(3, MASKS)])
        _, marks = self.dry(f"import sys\nsys.path.insert(0, {folder!r})\nimport torch, of_a_package\n"
                            "rows = of_a_package.rows((torch.randn(64, device='cuda') * 9).long())\nprint(rows)\n")
        self.assertEqual([m[2] for m in marks if m[0] == "open"], [1], "a number that nothing bounds")

    def test_a_float_of_which_a_size_is_made_is_no_fraction(self):
        """As Keypoint R-CNN enlarges what is in a box: a picture of no rows would end it."""
        lines, marks = self.dry("""
            import torch, torch.nn.functional as F
            boxes, x = torch.randn(100, 4, device="cuda") * 9, torch.randn(1, 3, 8, 8, device="cuda")
            widths = (boxes[:, 2] - boxes[:, 0]).clamp(min=1).ceil()
            wide = int(widths[7].item())
            high = int(widths[8].item())
            print(F.interpolate(x, size=(high, wide), mode="bicubic").shape[-1] >= 1, widths[9].item())
        """)
        self.assertEqual(lines, ["True 0.75"], "a number that is only shown is as it was")
        self.assertEqual([m[2] for m in marks if m[0] == "open"], [1])

    def test_numbers_that_are_drawn_for_a_size_are_told(self):
        lines, told = self.guesses("import torch\nn = torch.randint(10, 99, (1,), device='cuda').item()\nprint(torch.empty(n).numel() > 9)\n")
        self.assertEqual((lines, told), (["True"], [(2, DRAWS)]))
        lines, told = self.guesses("import torch\nx = torch.randint(10, 99, (512,), device='cuda')\nprint(x.cpu().shape[0], f'{x[0].item()}' != '')\n")
        self.assertEqual((lines, told), (["512 True"], []), "data, and a number that is shown")

    def test_a_number_without_a_bound_that_becomes_a_size_is_told(self):
        """Nothing says how large the numbers of a card are: the answer is "at least"."""
        head = "import torch, torch.nn.functional as F\nx = (torch.randn(64, device='cuda') * 9).long()\ndef largest(x):\n    return int(x.abs().max()) + 1\n"
        for use in "torch.zeros(int(x.abs().max()) + 1)", "n = largest(x)\nm = n + 3\ntorch.zeros(2, m)", "F.one_hot(x.abs())", "x[:x.max().item()]", \
                "n = x.max().item()\nF.pad(x, (0, n + 1))", "n = int(x.float().abs().max().item() * 3)\nfor i in range(n): pass", \
                "n = x.abs().max().item()\nprint(torch.LongTensor(n))":
            _, marks = self.dry(head + use + "\n")
            self.assertEqual([m[2] for m in marks if m[0] == "open"], [1], use)
        for use in "print(x.max().item())", "n = largest(x)\nprint(f'{n}', n / 3)", "F.one_hot(x.abs() % 3, 3)", "best = max(0, x.max().item())\nprint(torch.zeros(3).max() > best)", \
                "n = x.max().item()\nprint(torch.LongTensor([n]) + 1)":
            _, marks = self.dry(head + use + "\n")
            self.assertEqual([m for m in marks if m[0] == "open"], [], use)

    def test_a_whole_number_that_nothing_bounds_makes_a_size_of_one(self):
        """As the frames that VITS gives a letter: no layer works on none. A number that is only shown is 0, as what is unknown of whole numbers is."""
        lines, _ = self.dry("""
            import torch
            x = (torch.randn(64, device="cuda") * 9).long()
            n = x.sum().item()
            shown = x.max().item()
            print(torch.zeros(2, n).mean().item(), n, f"{shown}", [torch.zeros(x.sum().int().item()).shape[0], x[: x.max()].shape[0]])
        """)
        self.assertEqual(lines, ["0.0 1 0 [1, 1]"])

    def test_a_mask_that_chooses_on_the_host_is_told(self):
        """As much of it is true there as on the card."""
        head = "import numpy as np, torch\nx = torch.randn(64, device='cuda')\nmask = x > 0\nhost, n = torch.zeros(64), 0\n"
        for use in "host[mask.cpu()]", "there = mask.cpu().numpy()\nhost.numpy()[~there]", "rows = mask.to('cpu').nonzero()", "n = mask.cpu().sum()\ntorch.zeros(n)", \
                "n += mask.cpu().sum().item()\ntorch.zeros(n)", "n = np.sum(mask.cpu().numpy())\nhost[:n]":
            _, marks = self.dry(head + use + "\n")
            self.assertEqual([(m[0], m[1].rsplit("/")[-1], m[2]) for m in marks if m[0] in ("open", "routed")], [("routed", "program.py:5", MASKS)], use)
        for how, rows in {"random": 32, "balanced": 0, "worst": 64}.items():
            lines, _ = self.dry(head + "print(len(host[mask.cpu()]), int(mask.sum()), len(x[mask]))", HEADROOM_DRY_ROUTING=how)
            self.assertEqual(lines, [f"{rows} {rows} {rows}"])
        for use in "n = mask.cpu().sum()", "hits = mask.cpu()\nacc = hits.sum().item() / len(hits)\nprint(acc)", \
                "right = 0\nright += (mask == (x > 1)).cpu().sum().item()", "there = mask.cpu().numpy()\nboth = (there & (host.numpy() > 0)).sum()", \
                "done = mask.cpu().numpy()\nprint(done.any())", "print(mask.tolist()[0])", "host[(torch.arange(64, device='cuda') > 3).cpu()]":
            _, marks = self.dry(head + use + "\n")
            self.assertEqual([m for m in marks if m[0] in ("open", "routed")], [], use)

    def test_each_kind_of_guess_is_told_once(self):
        lines, told = self.guesses("""
            import torch
            x = torch.randn(64, 16, device="cuda")
            experts = torch.bincount(x.topk(2)[1].flatten(), minlength=16).tolist()
            rows = x[x[:, 0] > 0], x[x[:, 1] > 0]
            kinds = torch.unique(x), torch.unique(x[0])
            print(sum(experts), len(rows[0]), len(kinds[0]))
        """)
        self.assertEqual((lines, told), (["128 32 1024"], [(4, 0), (5, MASKS), (6, DIFFERENCES)]))

    def test_the_best_boxes_of_a_detector_are_no_experts(self):
        _, told = self.guesses("""
            import torch
            scores = torch.randn(2, 9000, device="cuda")
            best = scores.topk(1000)[1]
            print(len(best[best > 4000]), best[0].tolist()[:2])
        """)
        self.assertEqual([m for _, m in told], [MASKS])

    def test_what_is_too_large_to_be_computed_follows_the_rules_too(self):
        program = """
            import torch
            x = torch.randn(5 << 20, device="cuda")
            rows, mask = x.view(-1, 8), x > 0
            print(int(mask.sum()), int(mask.view(-1, 8).sum(1).max()), x.argmax().item(), mask.long().sum().item())
            counts = torch.bincount(rows.topk(2)[1].flatten(), minlength=8)
            torch.empty(counts.max()), torch.empty(mask.sum())
            print(counts.sum().item(), counts.min().item() > 0, torch.isfinite(x).all().item(), torch.isnan(x).any().item())
            print(torch.unique(x).shape[0], torch.unique(rows, dim=0).shape[0])
        """
        lines, told = self.guesses(program)
        half = 5 << 19
        self.assertEqual(lines, [f"{half} 4 {half} {half}", f"{2 * (5 << 17)} True True False", f"{5 << 20} {5 << 17}"])
        self.assertEqual({m for _, m in told}, {0, MASKS, DIFFERENCES})
        self.assertEqual(self.guesses(program, HEADROOM_DRY_ROUTING="balanced")[0][::2], ["0 0 0 0", "1 1"], "the largest may be any")

    def test_tokens_of_a_large_batch_go_to_different_experts_at_random(self):
        lines, told = self.guesses("""
            import torch
            scores = torch.randn(1 << 16, 128, device="cuda")
            chosen = scores.topk(8)[1]
            print(torch.bincount(chosen.flatten(), minlength=128).tolist(), chosen[9].unique().shape[0], chosen[0].tolist() != chosen[1].tolist())
        """)
        counts, different, others = eval(lines[0].replace("] ", "], ").replace(" True", ", True"))
        self.assertEqual((sum(counts), different, others, [m for _, m in told]), (8 << 16, 8, True, [0]))
        self.assertTrue(3500 < min(counts) < max(counts) < 4700, counts)

    def test_a_copy_of_a_mask_that_is_nearly_full_lacks_as_many(self):
        lines, _ = self.dry("""
            import torch
            x = torch.randn(8, 6400, device="cuda")
            masks = [row > 0 for row in x]
            counts = [len(row[m]) for row, m in zip(x, masks)]
            print(counts == [len(row[m.clone()]) for row, m in zip(x, masks)] == [len(row[m.long().bool()]) for row, m in zip(x, masks)],
                  counts == [int(m.int().sum()) for m in masks], len(set(counts)) > 3)
            apart = (x > 0).t()
            print(len(x.t()[apart]) == len(x.t()[apart.contiguous()]), len(x[x > 0]) < x.numel())
        """, HEADROOM_DRY_ROUTING="nearly")
        self.assertEqual(lines, ["True True True", "True True"])


if __name__ == "__main__":
    unittest.main()
