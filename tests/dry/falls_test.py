"""Numbers of the card that are compared with earlier ones: which branches keep more as they fall or rise, and what is read in the runs that follow."""

import os
import sys
import tempfile
import textwrap
import unittest

from dry_program import NET, OBSERVER, Dry

sys.path.insert(0, OBSERVER)
from headroom_dry import improving  # noqa: E402

FALLS = 5
LOOP = "for epoch in range(8):\n    loss = train()\n"

KEEPING = {
    "a copy of the weights": "best = 1e9\n" + LOOP + "    if loss.item() < best:\n        best, kept = loss.item(), copy.deepcopy(model.state_dict())\n",
    "a list of copies": "low, kept = 9, []\n" + LOOP + "    now = loss.item()\n    if now <= low:\n        low = now\n        kept.append(weights())\n",
    "the other branch": LOOP + "    v = loss.item()\n    if v >= b:\n        wait += 1\n    else:\n        b, w = v, [p.clone() for p in model.parameters()]\n",
    "after a turn that is left": LOOP + "    if best_loss < loss:\n        continue\n    kept = copy.deepcopy(model)\n",
    "after a function that is left": "def better(loss, state, best):\n    if loss >= best:\n        return state\n    return copy.deepcopy(model.state_dict())\n",
    "a flag": LOOP + "    is_best = evaluate(model) > best_accuracy\n    log(is_best)\n    if is_best:\n        kept = copy.deepcopy(model.state_dict())\n",
    "the least of a list": LOOP + "    seen.append(loss.item())\n    if seen[-1] == min(seen):\n        kept = copy.deepcopy(model.state_dict())\n",
    "a comparison on the card": LOOP + "    if torch.lt(loss, best).item():\n        kept = copy.deepcopy(model.state_dict())\n",
    "one of two values": LOOP + "    kept = copy.deepcopy(model.state_dict()) if loss < best else kept\n",
    "one condition after another": LOOP + "    loss < best and keep(model)\n",
    "a method that copies": """
        class Stopper:
            def __call__(self, val_loss, model):
                score = -val_loss
                if self.best_score is None or score >= self.best_score + self.delta:
                    self.save(model)
            def save(self, model):
                self.kept = copy.deepcopy(model.state_dict())
        """,
    "an operator": """
        class Keeper:
            def __init__(self, mode):
                self.is_better = operator.lt if mode == "min" else operator.gt
            def step(self, value, model):
                if self.is_better(value, self.top):
                    self.kept = copy.deepcopy(model.state_dict())
        """,
    "a function that says which is better": "def won(loss, best):\n    return loss < best - 1e-4\n" + LOOP + "    if won(loss, best):\n        kept = copy.deepcopy(model)\n",
    "a function that returns one": "def value():\n    return F.cross_entropy(model(x), y)\nf0 = value()\nfor q in range(9):\n    f1 = value()\n    if f1 > f0:\n        pass\n    else:\n        old = copy.deepcopy(model)\n",
    "work of its own": "def test():\n    return model(rows)\n" + LOOP + "    if loss < best:\n        out = test()\n",
    "gradients made anew": "norm = total_norm()\nif norm > 1.0:\n    for p in model.parameters():\n        p.grad = p.grad * (1.0 / norm)\n",
}
NOT_KEEPING = {
    "what is shown and saved": LOOP + "    losses.append(loss.item())\n    if loss.item() < best:\n        best = loss.item()\n        torch.save(model.state_dict(), name)\n        print(epoch, best)\n",
    "a copy on the host": LOOP + "    if loss < best:\n        kept = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}\n",
    "a rate that falls": LOOP + "    if loss.item() > best:\n        for group in optimizer.param_groups:\n            group['lr'] *= 0.5\n    scheduler.step(loss.item())\n",
    "gradients in their place": "norm = total_norm()\nif norm > 1.0:\n    for p in model.parameters():\n        p.grad.mul_(1.0 / norm)\n",
    "whole numbers": LOOP + "    if epoch > 2:\n        kept = copy.deepcopy(model)\n    if len(rows) < 3:\n        rows.append(model(x))\n    if x.shape[0] > n:\n        y = x.clone()\n",
    "a setting": "if args.ema > 0:\n    ema = copy.deepcopy(model)\nif args.temperature < 1:\n    kept = model(x)\n",
    "numbers of a step": LOOP + "    if loss.item() < best:\n        best = loss.item()\n        history.append((epoch, best))\n        history.append(loss.item())\n",
    "a clock": "began = time.time()\nwhile True:\n    spent = time.time() - began\n    if time.time() - began > 60:\n        kept = copy.deepcopy(model)\n",
    "a version": "if Version(torch.__version__) >= Version('2.6'):\n    model = wrap(model)\n",
}


class Branches(unittest.TestCase):
    def line(self, program, ended_itself=False, readers=()):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
            f.write(textwrap.dedent(program))
        self.addCleanup(os.unlink, f.name)
        source = improving.Source(improving.nodes_of(f.name, improving.ast.AST))
        return improving.first_line(source, source.functions, False, ended_itself, readers)

    def test_a_branch_that_keeps_at_an_improvement_is_found(self):
        for what, program in KEEPING.items():
            self.assertTrue(self.line(program), what)

    def test_a_branch_that_decides_no_bytes_is_not(self):
        for what, program in NOT_KEEPING.items():
            self.assertFalse(self.line(program), what)

    def test_a_function_that_read_such_a_number_gives_one_whatever_it_is_called(self):
        program = "for q in range(8):\n    v = run(model)\n    if v < b:\n        b, w = v, copy.deepcopy(model)\n"
        self.assertEqual((self.line(program), self.line(program, readers={"run"})), (0, 3))

    def test_a_function_of_a_package_that_read_such_a_number_is_looked_at(self):
        """What it is only not known to keep does not count there, nor other files of packages."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "site-packages", "fits.py")
        os.mkdir(os.path.dirname(file))
        for body, line in (("copy.deepcopy(model)", 5), ("look_at(model)", None)):
            with open(file, "w") as f:
                f.write(f"import copy\ndef fit(model, best=9):\n    for _ in range(9):\n        loss = model().item()\n        if loss < best:\n            kept = {body}\n")
            improving.linecache.checkcache(file)
            improving._copies.cache_clear()
            kept = improving.kept_by(None, False, set(), {file})
            self.assertEqual(kept, line and f"{file}:{line}")
        self.assertIsNone(improving.kept_by(None, False, set(), set()))

    def test_an_error_that_stops_the_training_ends_it_and_others_do_not(self):
        program = LOOP + "    if loss.item() > 1e4:\n        raise {}('...')\n"
        self.assertEqual([self.line(program.format(e), ended_itself=True) for e in ("RuntimeError", "StopTraining", "optuna.TrialPruned")], [0, 3, 3])

    def test_what_ends_a_loop_counts_where_the_program_ended_by_itself(self):
        program = LOOP + "    if loss.item() < best:\n        best, waited = loss.item(), 0\n    else:\n        waited += 1\n    if waited >= 3:\n        break\n"
        self.assertEqual((self.line(program), self.line(program, ended_itself=True)), (0, 7))


PROGRAM = """
import copy, torch
net = torch.nn.Linear(64, 64).cuda()
x, y = torch.randn(8, 64, device="cuda"), torch.randint(9, (8,), device="cuda")
def seen(best=9.0, on_card=None, right=0.0, many=9.0, on_all=None):
    all = [0, 0, 0, 0, 0]
    for _ in range(6):
        loss = net(x).sum().detach()
        if on_all is None or torch.lt(loss, on_all).item():
            all[4] += 1
        if on_card is None or loss < on_card:
            on_card = loss
            all[0] += 1
        value = torch.randn([], device="cuda").item()
        if value < best:
            best = value
            all[1] += 1
        share = (net(x).argmax(-1) == y).sum().item() / 8
        if share > right:
            right = share
            all[2] += 1
        on_all = loss if on_all is None else torch.minimum(on_all, loss)
        mean = torch.randn(4, device="cuda").cpu().mean()
        if mean < many:
            many = mean
            kept = copy.deepcopy(net)
            all[3] += 1
    return all
print(seen())
"""


class Falls(Dry):
    routed = staticmethod(lambda marks: [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed" and m[2] == FALLS])

    def test_each_number_is_smaller_or_larger_than_the_one_before(self):
        lines, marks = self.dry(PROGRAM)
        self.assertEqual(lines, ["[1, 1, 1, 1, 1]"])
        self.assertEqual(self.routed(marks), [("program.py:24", FALLS)])
        lines, marks = self.dry(PROGRAM, HEADROOM_DRY_ROUTING="random+falls")
        self.assertEqual((lines, self.routed(marks)), (["[6, 6, 1, 6, 6]"], []))
        on_card, read, share, many, on_all = eval(self.dry(PROGRAM, HEADROOM_DRY_ROUTING="random+rises")[0][0])
        self.assertEqual((on_card, read, many, on_all), (1, 1, 1, 1))
        self.assertGreater(share, 1, "a share of right answers grows")

    def test_a_float_falls_past_thresholds_and_stays_above_zero(self):
        program = """
            import torch
            read = [torch.randn([], device="cuda").item() for _ in range(900)]
            print(read[0] > 3, read[8] < 0.1, all(a > b > 0 for a, b in zip(read, read[1:])), all(a < b < 1 for a, b in zip(read, read[1:])))
        """
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="random+falls")[0], ["True True True False"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="random+rises")[0], ["False False False True"])

    def test_a_count_that_makes_a_size_stays_what_it_was(self):
        program = """
            import torch
            x = torch.randn(64, device="cuda")
            for _ in range(3):
                mask = x > 0
                n = mask.sum().item()
                print(torch.zeros(n, device="cuda").copy_(x[mask]).shape[0])
        """
        for way in "falls", "rises":
            self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING=f"random+{way}")[0], ["32"] * 3)

    def test_a_loop_that_shows_its_loss_makes_no_other_runs(self):
        loop = """
optimizer = torch.optim.SGD(net.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
best, shown = 1e9, []
for n in range(4):
    loss = step(optimizer)
    shown.append(loss.item())
    scheduler.step(loss.item())
    if loss.item() < best:
        best = loss.item()
        torch.save(net.state_dict(), "/dev/null")
        print(n)
"""
        self.assertEqual(self.routed(self.dry(NET + loop)[1]), [])
        more = "        kept = {k: v.clone() for k, v in net.state_dict().items()}\n"
        self.assertEqual(self.routed(self.dry(NET + loop + more)[1]), [("program.py:38", FALLS)])


if __name__ == "__main__":
    unittest.main()
