"""Sizes that follow from choices among unknown numbers (argmax), and from unknown masks in numbers: in the other runs nothing of them is true, then all."""

import os
import sys
import tempfile
import unittest

from dry_program import OBSERVER, Dry

sys.path.insert(0, OBSERVER)
from headroom_dry import counts, frames  # noqa: E402

MASKS = 1
RUNS = "random", "worst", "balanced"


class Choices(Dry):
    def sizes(self, program, runs=RUNS):
        """What it prints in each of these runs, as numbers, and the guesses that the first is told by."""
        lines, marks = self.dry(program)
        others = [self.dry(program, HEADROOM_DRY_ROUTING=how)[0] for how in runs[1:]]
        return list(zip(*[[eval(line) for line in each] for each in (lines, *others)])), [m[2] for m in marks if m[0] == "routed"]

    def test_a_mask_in_numbers_is_added_up_as_the_mask_is(self):
        sums = ("mask.float().sum()", "mask.half().sum()", "mask.long().sum()", "(mask * 1).sum()", "(mask * 1.0).sum()", "(mask + 0).sum()", "torch.where(mask, 1, 0).sum()",
                "(mask.float() * (y > 0).float()).sum()", "mask.float().mean() * 1000", "(mask.float() / 2).sum() * 2", "torch.bernoulli(y.sigmoid()).sum()",
                "torch.empty_like(y).bernoulli_(0.3).sum()", "mask.float().view(10, 100).sum(1).max() * 10", "mask.sum() / 2 * 2")
        rows, told = self.sizes("import torch\ny = torch.randn(1000, device='cuda')\nmask = y > 0.5\nfor n in " + ", ".join(sums) + ":\n    print(int(n))\n    torch.empty(int(n))\n"
                                "print(int((1 - mask.long()).sum()))\nlarge = torch.randn(1 << 13, 1 << 13, device='cuda') > 1\n"
                                "print(int(large.float().sum()))\nprint(int(large.sum(1).max()))\n")
        for text, row in zip(sums, rows):
            self.assertEqual(row, (500, 1000, 0), text)
        self.assertEqual(rows[len(sums):], [(500, 0, 1000), (1 << 25, 1 << 26, 0), (1 << 12, 1 << 13, 0)])
        self.assertEqual(told, [MASKS])

    def test_two_masks_of_which_one_is_turned_and_masks_that_are_written_to_are_followed_no_further(self):
        made = ("a.float() * (1 - b.float())", "a.float().add(b.float(), alpha=-1)", "(a.float() * 2 - 1) * (b.float() * 2 - 1)", "a.float().mul_(1000)", "a.float().add_(x)",
                "a.float().copy_(x.double())", "a.float().fill_(3).mul_(x)", "changed(a.float())")
        for n in 1000, 1 << 19:
            program = f"import torch\nx = torch.randn({n}, device='cuda')\na, b = x > 0, x > 1\n" \
                      "def changed(m):\n    m[1:] += 7\n    return m\nfor m in " + ", ".join(made) + ":\n    print(m.sum().item())\n"
            for how in RUNS:
                lines, _ = self.dry(program, HEADROOM_DRY_ROUTING=how)
                self.assertEqual(set(lines), {"0.75"}, f"{n} {how}: as what nobody knows")

    def test_what_has_no_memory_of_its_own_is_no_copy_of_a_mask(self):
        lines, _ = self.dry("""
            import torch
            x = torch.randn(1000, device="cuda")
            mask = (x > 0).float()
            print((torch.eye(10, device="cuda").to_sparse() * 2).shape)
            print(torch.compile(lambda a, b: a * b + 1, backend="aot_eager")(x, mask).shape)
        """)
        self.assertEqual(lines, ["torch.Size([10, 10])", "torch.Size([1000])"])

    def test_a_place_that_is_looked_up_and_shown_makes_no_other_runs(self):
        _, marks = self.dry("""
            import torch
            names, seen = [str(i) for i in range(10)], torch.zeros(10, 10)
            scores = torch.randn(10, device="cuda")
            best = scores.argmax().item()
            print(names[best], scores[best].item())
            for chosen in torch.randn(4, 10, device="cuda").argmax(1):
                seen[2, chosen.long()] += 1
        """)
        self.assertEqual([m for m in marks if m[0] == "routed"], [])

    def test_choices_of_pictures_of_many_sizes_are_not_kept_for_ever(self):
        lines, _ = self.dry("""
            import torch
            from headroom_dry import rules, steps
            rules.MOST_DRAWN = 5000
            class Pixels(torch.nn.Module):
                def classes(self, n):
                    return torch.randn(n, 10, device="cuda").argmax(1)
            model = Pixels()
            for n in range(1000, 1020):
                model.classes(n)
            print([len(x) for x in steps.values.rules.drawn.values()])
        """)
        self.assertEqual(lines, ["[1016, 1017, 1018, 1019]"])

    def test_choices_of_any_type_are_read(self):
        lines, marks = self.dry("""
            import torch
            chosen = torch.randn(100, 10, device="cuda").argmax(1)
            for kind in "uint8", "uint16", "uint32", "int16":
                parts = torch.empty(chosen.to(getattr(torch, kind)).cpu().long().max() + 1)
                print(parts.shape[0])
        """)
        self.assertEqual((lines, [m[2] for m in marks if m[0] == "routed"]), (["10"] * 4, [MASKS]))

    def test_many_copies_of_masks_are_looked_through_seldom(self):
        lines, _ = self.dry("""
            import torch
            from headroom_dry import steps
            values, asked = steps.values, 0
            is_first = values.is_first
            def counted(at):
                global asked
                asked += 1
                return is_first(at)
            values.is_first = counted
            masks = [(torch.randn(100, device="cuda") > 0).float() for _ in range(2000)]
            print(asked < 8000)
        """)
        self.assertEqual(lines, ["True"])

    def test_what_is_chosen_among_unknown_numbers_may_be_any(self):
        asked = ("x[pred == 3]", "x[pred != 0]", "x[pred > 4]", "x[pred == label]", "x[torch.where(pred == 5)[0]]", "(pred == 7).nonzero()", "torch.empty((pred == 3).sum())",
                 "torch.empty(int((pred == 3).float().sum()))", "torch.empty(pred.bincount(minlength=10).max())", "x[word == 3]", "torch.empty(int((word == 3).long().sum()))")
        rows, told = self.sizes("import torch\nx, label = torch.randn(1000, 4, device='cuda'), (torch.arange(1000) % 10).cuda()\n" + "".join(
            f"pred, word = torch.randn(1000, 10, device='cuda').argmax(1), torch.randn(1000, 5000, device='cuda').argmax(1)\nprint({one}.shape[0])\n" for one in asked))
        for text, row in zip(asked, rows):
            self.assertLess(row[0], 1000, text)
            self.assertEqual(row[1], 1000, text)
            self.assertLessEqual(row[2], 100, text)
        self.assertEqual(told, [MASKS])

    asked = staticmethod(lambda marks: [m[1].split("|")[0] for m in marks if m[0] == "run"])

    def test_a_class_for_which_more_is_asked_has_a_run_of_its_own(self):
        loop = """
            import torch
            x, sizes = torch.randn(4096, 64, device="cuda"), [{}] * 5 + [{}] + [1] * 4
            pred, most = torch.randn(4096, 10, device="cuda").argmax(1), 0
            for c in range(10):
                most = max(most, x[pred == c].repeat(1, sizes[c]).numel() // 64)
            print(most)
        """
        self.assertEqual(self.asked(self.dry(loop.format(1, 32))[1]), ["worst+class:5"])
        self.assertEqual(self.dry(loop.format(1, 32), HEADROOM_DRY_ROUTING="worst+class:5")[0], [str(32 * 4096)])
        self.assertEqual(self.asked(self.dry(loop.format(1, 1))[1]), [], "as much for each class")

    def test_each_class_that_the_source_asks_for_has_a_run(self):
        program = """
            import numpy as np, torch
            x, pred = torch.randn(4096, 64, device="cuda"), torch.randn(4096, 10, device="cuda").argmax(1)
            host = pred.cpu().numpy()
            first = x[torch.from_numpy(np.where(host == 3)[0]).cuda()]
            second = x[torch.from_numpy(np.where(host == 5)[0]).cuda()]
            print(len(first), len(second))
        """
        self.assertEqual(self.asked(self.dry(program)[1]), ["worst+class:5"])
        self.assertEqual([self.dry(program, HEADROOM_DRY_ROUTING=way)[0] for way in ("worst", "worst+class:5")], [["4096 0"], ["0 4096"]])

    def test_a_class_that_is_asked_for_on_the_host_has_all_rows_or_few(self):
        rows, told = self.sizes("""
            import collections, numpy as np, torch
            pred = torch.randn(1280, 10, device="cuda").argmax(1)
            print(len(np.where(pred.cpu() == 3)[0]))
            on_host = pred.cpu().numpy()
            print(len(np.where(on_host == 3)[0]))
            kinds = collections.Counter(pred.tolist())
            print(torch.zeros(kinds.most_common(1)[0][1]).shape[0])
            by_class = collections.defaultdict(list)
            for row, kind in enumerate(pred.tolist()):
                by_class[kind].append(torch.zeros(1, device="cuda"))
            print(len(by_class))
            print(torch.zeros(len(set(pred.cpu().numpy().tolist()))).shape[0])
            values, counts = pred.unique(return_counts=True)
            print(torch.zeros(len(values), int(counts.max())).numel())
            threes = 0
            for _ in range(5):
                threes += torch.randn(1, 10, device="cuda").argmax().item() == 3
            print(threes)
        """, (*RUNS, "nearly"))
        self.assertEqual([row[1:] for row in rows], [(1280, 128, 21), (1280, 128, 21), (1280, 128, 1251), (1, 10, 10), (1, 10, 10), (1280, 1280, 12510), (0, 0, 5)])
        self.assertEqual(told, [MASKS])
        lines, marks = self.dry("import numpy as np, torch\npred = torch.randn(1280, 10, device='cuda').argmax(1)\nwhere = np.where(pred.cpu() == 3)[0]\n")
        self.assertEqual([(m[0], m[2]) for m in marks if m[0] in ("open", "routed")], [("routed", MASKS)])

    def test_as_many_rows_in_all_as_there_are_whatever_they_choose(self):
        """Experts by hand, and the classes of a picture: each row has one."""
        rows, _ = self.sizes("""
            import torch
            x = torch.randn(512, 8, device="cuda")
            chosen = torch.randn(512, 8, device="cuda").argmax(1)
            print([x[chosen == e].shape[0] for e in range(8)])
            chosen = torch.randn(512, 8, device="cuda").max(1)[1]
            print([part.shape[0] for part in x[chosen.argsort()].split(chosen.bincount(minlength=8).tolist())])
        """)
        for row in rows:
            self.assertEqual([sum(parts) for parts in row], [512] * 3)
            self.assertEqual([max(parts) for parts in row][1], 512)

    def test_where_a_row_ends_may_be_any_place(self):
        rows, told = self.sizes("""
            import torch
            words = torch.randn(100, 40, 500, device="cuda").argmax(-1)
            n = (words == 2).long().argmax(1).max().item()
            print(n)
            print(torch.empty(8, (torch.randn(8, 40, device="cuda") > 2).float().argmax(1).max()).shape[1])
        """)
        self.assertEqual([row[1:] for row in rows], [(39, 0), (39, 0)])
        self.assertEqual(told, [MASKS])

    def test_generation_goes_on_and_makes_no_other_runs(self):
        lines, marks = self.dry("""
            import torch
            unfinished, made = torch.ones(4, dtype=torch.long).cuda(), []
            for _ in range(5):
                word = torch.randn(4, 50257, device="cuda").argmax(-1)
                made.append(word[0].item())
                unfinished = unfinished.mul((word != 2).long())
                if unfinished.max() == 0 or made[-1] == 50256:
                    break
            ends, at = torch.isin(word[:, None], torch.tensor([2, 3]).cuda()), torch.full((4,), 5).cuda()
            at[ends.any(dim=1)] = ends.int().argmax(dim=1)[ends.any(dim=1)]
            right = (word == 7).float().mean().item()
            table = torch.bincount(word, minlength=60000)
            print(len(made), f"{right:.1f}")
        """)
        self.assertEqual((lines, [m for m in marks if m[0] == "routed"]), (["5 0.0"], []))

    def test_numbers_of_which_a_size_is_made_in_any_way_are_told(self):
        for use in ("y[:, :lens.max()]", "[y[i, :n] for i, n in enumerate(lens.tolist())]", "[i for i, s in enumerate(x.tolist()) if s > x.mean()]", "torch.zeros(lens.max(), 3)"):
            _, marks = self.dry(f"import torch\nx, y = torch.rand(99, device='cuda'), torch.randn(99, 99, device='cuda')\nlens = (x * 99).long()\nz = {use}\n")
            self.assertEqual([m[1].split(" ")[0].rsplit(":", 1)[1] for m in marks if m[0] == "open"], ["4"], use)


class Look:
    """Stands for a number, or numbers, of the card."""

    def __init__(self, what, is_whole):
        self.as_asked, self.judged = (what, is_whole), []

    def item(self):
        self.judged.append(counts.is_size(frames.asking_frames(sys._getframe(1)), *self.as_asked))
        return 3

    def tolist(self):
        self.judged.append(counts.is_size(frames.asking_frames(sys._getframe(1)), *self.as_asked))
        return [3, 3, 3]

    __index__ = item


class Sizes(unittest.TestCase):
    def judged(self, program, what=counts.NUMBER, is_whole=False):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
            f.write(program)
        self.addCleanup(os.unlink, f.name)
        x, rows = Look(what, is_whole), [[]] * 9
        exec(compile(program, f.name, "exec"), {"x": x, "rows": rows, "given": lambda *_, **__: rows, "empty": lambda *_: rows, "where": lambda *_: rows, "log": lambda *_: None})
        return x.judged

    def test_a_number_becomes_a_size(self):
        for program in ("n = x.item()\nm = rows[:n]", "m = rows[:x]", "m = rows[1:x]", "for i, n in enumerate(x.tolist()):\n    m = rows[:n]", "m = [rows[:n] for n in x.tolist()]",
                        "a, b = x.item(), 2\nm = empty(a)", "def count():\n    return x.item()\nm = empty(count())", "def count():\n    n = x.item()\n    return n\nn = count()\nm = rows[:n]",
                        "n = int(x.item() * 3)\nm = given(n)", "n = 1; m = rows[:x.item()]; n = 2",
                        "import math\nv = x.item()\nn = max(1, math.ceil(-math.log2(v)))\nm = empty(n)", "n = list(set(x.tolist()))\nm = empty(len(n))",
                        "for n in x.tolist():\n    rows[n].append(rows)"):
            self.assertEqual(self.judged(program), [True], program)
        for program in "n = x.item()\nm = rows[n]", "n = x.item()\nlog(n)", "m = given(x.item())", "if x.item() > 3:\n    m = rows[:2]", "n = x.item(); m = rows[:2]", "import math\nn = math.log2(x.item() + 2)\nm = given(n)", "n = x.tolist()\nm = empty(len(n))", "for n in x.tolist():\n    rows[n].append(float(n))":
            self.assertEqual(self.judged(program), [False], program)
        for program in "m = given(round(x.item(), 4))", "n = round(x.item(), 4)\nm = given([n, 2])":
            self.assertEqual(self.judged(program), [False], program)
        for program in "m = given(round(x.item()))", "def count():\n    n = x.item()\n    return n, 2\nn, m = count()\nm = rows[:n]":
            self.assertEqual(self.judged(program), [True], program)
        self.assertEqual(self.judged("m = given(x.item())", is_whole=True), [True], "a whole number that a function is given")
        self.assertEqual(self.judged("log(x.item())\nm = len(str(x.item()))", is_whole=True), [False, False])

    def test_numbers_choose(self):
        for program in ("m = [i for i, n in enumerate(x.tolist()) if n > 2]", "n = x.tolist()\nm = [i for i in n if i > 2]", "for n in x.tolist():\n    if n > 2:\n        rows.append(n)",
                        "for n in x.tolist():\n    if n > 2:\n        continue\n    log(n)"):
            self.assertEqual(self.judged(program, counts.NUMBERS), [True], program)
        for program in "m = where([n > 2 for n in x.tolist()], 1, 0)", "n = x.tolist()\nlog(sum(n))", "n = x.tolist()\nm = [i + 1 for i in n]", "for n in x.tolist():\n    if n > 2:\n        log(n)":
            self.assertEqual(self.judged(program, counts.NUMBERS), [False], program)


if __name__ == "__main__":
    unittest.main()
