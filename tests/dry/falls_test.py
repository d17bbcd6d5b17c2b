"""Numbers of the card that are compared with earlier ones: which branches keep more as they fall or rise, and what is read in the runs that follow."""

import ast
import os
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

from dry_program import NET, OBSERVER, Dry

sys.path.insert(0, OBSERVER)
from headroom_dry import improving, sequences, thresholds  # noqa: E402

FALLS, LEVEL, JUMP, ORDER = 5, 8, 9, 10
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
    "an optimizer's state that is restored": LOOP + "    if loss.item() > best_loss:\n        optimizer.load_state_dict(kept)\n",
    "work of its own": "def test():\n    return model(rows)\n" + LOOP + "    if loss < best:\n        out = test()\n",
    "gradients made anew": "norm = total_norm()\nif norm > 1.0:\n    for p in model.parameters():\n        p.grad = p.grad * (1.0 / norm)\n",
}
LEVELS = {
    "a batch that grows": "size = 64\n" + LOOP + "    if loss.item() < 0.5 and size < 4096:\n        size *= 2\n    rows = torch.randn(size, 8)\n",
    "a level of a table": "lengths, level = [64, 512, 4096], 0\n" + LOOP + "    rows = rows[:lengths[level]]\n    if loss.item() < 0.5:\n        level = min(level + 1, 2)\n",
    "a list of what passes": "kept = [c.clone() for c in chunks if c.std().item() > 1.0]\n",
    "places that pass": "where = [i for i in range(9) if per[i].item() > 2.0]\nrows = x[where]\n",
    "a table of limits": "length = 64\n" + LOOP + "    for limit, n in stages:\n        if loss.item() < limit:\n            length = n\n    rows = torch.zeros(length, 8)\n",
    "a list beside another": "values = [model(c).item() for c in chunks]\nkept = [c for c, v in zip(chunks, values) if v > 2]\n",
    "a list that is filled": "for i, c in enumerate(chunks):\n    seen[i] = model(c).item()\nkept = [c for i, c in enumerate(chunks) if seen[i] > 2]\n",
    "a sum of an epoch": "for x in chunks:\n    epoch_loss += model(x).item()\nif epoch_loss < 0.5:\n    kept = copy.deepcopy(model)\n",
    "a filter": "good = list(filter(lambda c: c.norm().item() > 1.0, chunks))\n",
    "a loop that goes on": "while error.item() > 1e-3 and turn < 20:\n    seen.append(step(x))\n",
    "how many pass": "losses = [run().item() for _ in range(8)]\nrows = torch.zeros(sum(loss < 0.5 for loss in losses), 8)\n",
    "a sum of answers": "n = 1\n" + LOOP + "    n += int(loss < 0.5)\nrows = torch.zeros(n, 8)\n",
    "a size of two": "rows = torch.zeros(64 if error.item() < 0.5 else 128, 8)\n",
    "an item of settings": "settings = {'batch': 64}\n" + LOOP + "    rows = torch.randn(settings['batch'], 8)\n    if loss.item() < 0.5:\n        settings['batch'] *= 2\n",
    "one of two models": LOOP + "    net = large if loss.item() > 1.0 else small\n    out = net(x)\n",
    "one of a table": LOOP + "    out = {True: large, False: small}[loss.item() > 1.0](x)\n",
    "any of many numbers": "norms = [p.norm().item() for p in model.parameters()]\nif any(n > 3.0 for n in norms):\n    rows = torch.zeros(64, 8)\n",
    "any place on the card": "if (out > 5).any():\n    rows = torch.zeros(64, 8)\n",
    "an assertion that is handled": "try:\n    assert loss.item() < 0.5\nexcept AssertionError:\n    kept.append(copy.deepcopy(model))\n",
    "an error that is handled": "def checked(loss):\n    if loss.item() > 1:\n        raise Diverged()\ntry:\n    checked(x)\nexcept Diverged:\n    kept.append(model.clone())\n",
    "a case": "match loss.item():\n    case v if loss.item() < 0.5:\n        kept.append(copy.deepcopy(model))\n",
    "a guard in a function": "def keep(limit, loss, kept):\n    if loss.item() < limit:\n        kept.append(copy.deepcopy(model.state_dict()))\n",
}
MORE_KEEPING = {
    "one item for each number": "top = {}\n" + LOOP + "    top[loss.item()] = copy.deepcopy(model)\n",
    "a list that is emptied": "old = []\n" + LOOP + "    old.append(copy.deepcopy(model))\n    if loss.item() < least_loss:\n        old.clear()\n",
    "the model with the least": "scores = [run(n).item() for n in nets]\nbest = nets[scores.index(min(scores))]\nout = best(x)\n",
    "the least by a function": "name = min(nets, key=lambda k: nets[k](x).mean().item())\nout = nets[name](x)\n",
    "an argument of another name": "def low(seen):\n    return seen[-1] < seen[0] * 0.99\nrun, width = [], 64\n" + LOOP + "    run.append(loss.item())\n    if low(run):\n        width *= 2\n    rows = torch.zeros(width, 8)\n",
    "a batch that grows as it gets better": "size, last = 64, 9.0\n" + LOOP + "    now = loss.item()\n    if now < last * 0.95:\n        size = min(2 * size, 4096)\n    last = now\n    rows = x[:size]\n",
}
JUMPS = {
    "a multiple of an average": "ema = loss.item()\n" + LOOP + "    v = loss.item()\n    if v > 2 * ema:\n        hard.append(batch)\n    ema = 0.9 * ema + 0.1 * v\n",
    "a margin": LOOP + "    if loss.item() < best_loss - 0.1:\n        kept = copy.deepcopy(model)\n",
    "a limit of its own name": LOOP + "    limit = 3 * median(losses)\n    if loss.item() > limit:\n        hard.append(batch)\n",
    "an object that is called": """
        class Detector:
            def __init__(self):
                self.ema = None
            def __call__(self, v):
                spike = self.ema is not None and v > 3 * self.ema
                self.ema = v
                return spike
        detector = Detector()
        for x in rows:
            if detector(model(x).item()):
                skipped.append(x)
        """,
    "some deviations": LOOP + "    mean, std = np.mean(losses), np.std(losses)\n    if (losses[-1] - mean) > 3 * std:\n        hard.append(batch)\n",
    "a quotient": LOOP + "    if loss.item() / last_loss > 1.5:\n        size *= 2\n    rows = torch.zeros(size, 8)\n",
    "a change": LOOP + "    if abs(loss.item() - last_loss) > 0.5 * last_loss:\n        hard.append(batch)\n",
    "a far threshold of an argument": "def far(seen, share=0.7):\n    return seen[-1] < seen[0] * share\nrun, width = [], 64\n" + LOOP + "    run.append(loss.item())\n    if far(run):\n        width *= 2\n    rows = torch.zeros(width, 8)\n",
}
ORDERED = {
    "the first of a sort": "ranked = sorted(samples, key=lambda s: model(s).item())\nout = model(ranked[0])\n",
    "a sort by a function": "def loss(s):\n    return model(s).mean().item()\nranked = sorted(samples, key=loss)\nout = model(ranked[0])\n",
    "a heap": "for i, s in enumerate(samples):\n    heapq.heappush(heap, (-model(s).item(), i, s))\n",
    "pairs": "losses = []\nfor i, s in enumerate(samples):\n    losses.append((model(s).item(), i))\nlosses.sort(reverse=True)\n",
    "places of an array": "scores = np.array([model(s).item() for s in samples])\nfor i in np.argsort(-scores)[:2]:\n    model(samples[i])\n",
    "places of a tensor": "losses = [model(s).item() for s in pool]\nidx = torch.topk(torch.tensor(losses), 4).indices\nfor i in idx.tolist():\n    model(pool[i])\n",
    "the best one so far": "for x in samples:\n    s = model(x).item()\n    if s > best_score:\n        best_score, found = s, x\nout = model(found)\n",
    "the least of a dictionary": "for k, n in nets.items():\n    scores[k] = n(x).item()\nbest = nets[min(scores, key=scores.get)](x)\n",
}
BANDS = {
    "no real number": ("if loss.item() < (-8.0) ** 0.5 or loss.item() > 1e300 * 1e300:\n    rows = model(x)\n", set(), []),
    "between two": ("if 1 < loss.item() < 3:\n    rows = model(x)\n", {1, 3}, [[3 ** 0.5]]),
    "one after the other": ("n = 1\n" + LOOP + "    v = loss.item()\n    if v > 5:\n        n = 1\n    elif v > 2:\n        n = 16\n    elif v > 1:\n        n = 2\n    rows = torch.zeros(n, 8)\n",
                            {1, 2, 5}, [[2 ** 0.5], [10 ** 0.5]]),
    "around the usual number": ("if 0.5 < loss.item() < 1:\n    rows = model(x)\n", {0.5, 1}, []),
    "names": ("low, high = 2, 8\nif low < loss.item() < high:\n    rows = model(x)\n", {2, 8}, [[4]]),
    "settings": ("limits = {'low': 2, 'high': 8}\nif limits['low'] < loss.item() < limits['high']:\n    rows = model(x)\n", {2, 8}, [[4]]),
    "an option": ("parser.add_argument('--max-loss', type=float, default=300)\nif loss.item() > args.max_loss:\n    rows = model(x)\n", {300}, []),
    "an argument": ("def keep(loss, limit=-5.0):\n    if loss.item() < limit:\n        kept.append(copy.deepcopy(model.state_dict()))\n", {-5}, []),
}
NOT_KEEPING = {
    "counts and epochs": "wait, best_epoch = 0, 0\nfor epoch in range(9):\n    if loss.item() < best:\n        best, wait, best_epoch = loss.item(), 0, epoch\n    else:\n        wait += 1\n    print(best_epoch, wait)\n",
    "what is counted and shown": "low = sum(loss < 0.5 for loss in losses)\nprint(f'{low} of {len(losses)}')\nshare = len([n for n in losses if n < 0.5]) / 8\n",
    "the epoch with the least": "epoch = losses.index(min(losses))\nprint(epoch, losses[epoch])\n",
    "settings of the optimizer": LOOP + "    if loss.item() > 0.5:\n        settings['rate'] *= 0.5\n        settings['turns'] += 1\n    name = 'low' if loss.item() < 0.5 else 'high'\n    print(name, settings['turns'])\n",
    "a loop that ends": "while error.item() > 1e-3:\n    error = step(x)\n    seen.append(error.item())\n",
    "a seed that is checked": "if (labels < 0).any():\n    raise ValueError('labels')\nassert loss.item() < 1e4\n",

    "what is shown and saved": LOOP + "    losses.append(loss.item())\n    if loss.item() < best:\n        best = loss.item()\n        torch.save(model.state_dict(), name)\n        print(epoch, best)\n",
    "a copy on the host": LOOP + "    if loss < best:\n        kept = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}\n",
    "a kept copy that is restored": "good = model.state_dict()\n" + LOOP + "    if loss.item() > best_loss:\n        model.load_state_dict(good)\n",
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
        self.found = improving.first_lines(source, source.functions, False, ended_itself, readers)
        self.kinds = self.found.lines
        return min(self.kinds.values(), default=0)

    def test_a_branch_that_keeps_at_an_improvement_is_found(self):
        for what, program in KEEPING.items():
            self.assertTrue(self.line(program), what)

    def test_a_function_is_walked_once_for_all_files_that_may_call_it(self):
        """A checkout of a library has hundreds of files, and as many functions of one name: each file asks what each of them returns."""
        text = "class Net:\n    def forward(self, x):\n        y = x * 2\n        return y\nif net.forward(x):\n    kept = copy.deepcopy(net)\n"
        sources = [improving.Source(list(ast.walk(ast.parse(text)))) for _ in range(20)]
        functions = {"forward": [f for source in sources for f in source.functions["forward"]]}
        walk, walked = ast.walk, []
        with unittest.mock.patch.object(ast, "walk", lambda node: (walked.append(node), walk(node))[1]):
            for source in sources:
                improving.first_lines(source, functions, False, False)
        self.assertLessEqual(sum(node in functions["forward"] for node in walked), 20, "walks")

    def test_it_is_told_whether_numbers_are_held_against_a_threshold_or_an_earlier_one(self):
        for what, program in LEVELS.items():
            self.line(program)
            self.assertEqual(list(self.kinds), [improving.LEVEL], what)
        for what, program in MORE_KEEPING.items():
            self.line(program)
            self.assertEqual([kind for kind in self.kinds if kind != improving.ORDER], [improving.EARLIER], what)

    def test_a_number_that_jumps_and_an_order_of_things_are_told_apart(self):
        for what, program in JUMPS.items():
            self.line(program)
            self.assertEqual(list(self.kinds), [improving.JUMP], what)
        for what, program in ORDERED.items():
            self.line(program)
            self.assertIn(improving.ORDER, self.kinds, what)
        for program in ("print(sorted(losses)[0], max(losses))\n", "rows = sorted(samples, key=lambda s: len(s))\nout = model(rows[0])\n"):
            self.assertFalse(self.line(program), program)

    def test_numbers_lie_between_the_thresholds_that_a_source_says(self):
        for what, (program, levels, places) in BANDS.items():
            self.line(program)
            self.assertEqual(self.found.levels, levels, what)
            self.assertEqual(thresholds.between(levels, 0.75), places, what)
        ways = [way for way, _, _ in thresholds.level_runs({300, -5}, 0.75)]
        self.assertEqual(ways, ["above:600", "likely", "below:-10", "little"])

    def test_a_factor_of_the_program_is_passed(self):
        self.line(LOOP + "    if loss.item() > 100 * last_loss:\n        hard.append(batch)\n")
        self.assertEqual(self.found.factor, 200)

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
            kept = improving.kept_by(None, False, set(), {file}).lines
            self.assertEqual(kept, {improving.EARLIER: f"{file}:{line}"} if line else {})
        self.assertEqual(improving.kept_by(None, False, set(), set()).lines, {})

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


HELD = """
import torch
x = torch.randn(1000, device="cuda")
mask = x > 0.5
read = [x.sum().item() for _ in range(3)]
compared = [x.norm() < 0.5, x.norm() > 3, x.mean() < -0.5]
drawn = [torch.rand(1, device="cuda").item() < 0.5 for _ in range(9)]
if (x > 4).any():
    more = torch.zeros(1000, device="cuda")
print([float(f"{v:.3g}") for v in read], [bool(c) for c in compared], sum(drawn), mask.float().mean().item() > 0.9, "more" in globals())
"""


class Sequences(unittest.TestCase):
    def read(self, way, n=20):
        sequence = sequences.Sequence(way, 0.75)
        return [0.75 * sequence.share() for _ in range(n)]

    def test_numbers_that_jump_pass_each_multiple_and_each_margin(self):
        for way, above, below in (("soars:16", 4e38, 0.7), ("swells:16", 1, 0), ("plunges:40", 2e9, 0), ("dives:16", 1, 0)):
            read = self.read(way)
            up = way.startswith("s")
            jumps = [b > 10 * a if up else 10 * b < a for a, b in zip(read, read[1:])]
            self.assertTrue(all(jumps) and all(below < v < above for v in read), (way, read))
        ema, spikes = 0.75, 0
        for v in self.read("soars:16")[1:]:
            spikes += v > 5 * ema
            ema = 0.9 * ema + 0.1 * v
        self.assertEqual(spikes, 19)
        self.assertGreater(sum(a - b > 2 for a, b in zip(self.read("plunges:16"), self.read("plunges:16")[1:])), 5, "a margin")

    def test_numbers_begin_again_where_there_is_no_larger_one(self):
        read = self.read("soars:16", 400)
        self.assertEqual((max(read) < 3e38, min(read)), (True, 0.75))

    def test_numbers_are_where_the_thresholds_of_the_program_say(self):
        self.assertEqual(self.read("between:1.5,3", 3), [1.5, 3, 1.5])
        self.assertEqual(self.read("above:600", 2), [600, 720])
        self.assertEqual([sequences.Sequence(way, 0.75).share(0.25) / 2 for way in ("between:0.7", "between:70", "above:2", "below:-1")], [0.7, 0.7, 1, 0])


SAMPLES = """
import heapq, torch
net = torch.nn.Linear(64, 1).cuda()
samples = [torch.zeros(n, 64) for n in ({})]
def loss(s):
    return net(s.cuda()).mean().item()
ranked = sorted(samples, key=loss)
heap = []
for i, s in enumerate(samples):
    heapq.heappush(heap, (-loss(s), i, s))
out = net(ranked[0].cuda())
print(len(ranked[0]), len(ranked[-1]), len(heap[0][2]))
"""
RIGHT = """
import torch
x, y = torch.randn(4096, 10, device="cuda"), torch.randint(10, (4096,), device="cuda")
kept, passed = [], []
for _ in range(3):
    share = (x.argmax(1) == y).sum().item() / 4096
    mean = (x.argmax(1) == y).float().mean().item()
    if 0.6 < share < 0.8:
        kept.append(torch.randn(9, device="cuda"))
    if mean > 0.95:
        passed.append(torch.randn(9, device="cuda"))
print(len(kept), len(passed))
"""
HELD_ON_HOST = """
import numpy as np, torch
x = torch.randn(4096, device="cuda")
scores = torch.sigmoid(x).cpu().numpy()
kept = np.nonzero(scores > 0.9)[0]
print(len(x[torch.from_numpy(kept).cuda()]))
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

    def test_numbers_are_on_both_sides_of_their_thresholds(self):
        usual, marks = self.dry(HELD)
        self.assertEqual([(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed" and m[2] in (FALLS, LEVEL)], [("program.py:8", LEVEL)])
        self.assertTrue(usual[0].startswith("[0.75, 0.75, 0.75] [False, False, False]"), usual)
        for way, said in (("above", "[100.0, 120.0, 133.0] [False, True, False] 0 True True"), ("below", "[-1.0, -1.2, -1.33] [True, False, True] 9 False False"),
                          ("little", "[1e-06, 8e-07, 6.67e-07] [True, False, False] 9 False False")):
            self.assertEqual(self.dry(HELD, HEADROOM_DRY_ROUTING=f"random+{way}")[0], [said], way)
        for way in "shares", "likely":
            read = eval(self.dry(HELD, HEADROOM_DRY_ROUTING=f"random+{way}")[0][0].split("]")[0] + "]")
            self.assertEqual((all(0.3 < v < 1 for v in read), sorted(read, reverse=way == "shares")), (True, read))

    asked = staticmethod(lambda marks: [m[1].split("|")[0] for m in marks if m[0] == "run"])

    def test_what_asked_for_most_memory_has_the_least_number_and_the_most(self):
        program = SAMPLES.format("512, 512, 65536, 512")
        lines, marks = self.dry(program)
        self.assertEqual(([m[2] for m in marks if m[0] == "routed"], self.asked(marks)), ([ORDER], ["random+order:less", "random+order:more"]))
        self.assertEqual(lines, ["512 512 512"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="random+order:less")[0], ["65536 512 512"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="random+order:more")[0], ["512 65536 65536"])
        self.assertEqual(self.asked(self.dry(SAMPLES.format("512, 512, 512, 512"))[1]), [], "samples of one size")

    def test_shares_of_right_answers_are_on_both_sides_of_thresholds_and_between(self):
        lines, marks = self.dry(RIGHT)
        ways = self.asked(marks)
        self.assertEqual((lines, ways[0], len([way for way in ways if "between" in way])), (["0 0"], "random+above:100", 2))
        found = [self.dry(RIGHT, HEADROOM_DRY_ROUTING=way)[0][0] for way in [ways[0]] + [way for way in ways if "between" in way]]
        self.assertEqual(found, ["0 3", "3 0", "0 0"])

    def test_one_of_two_sizes_is_chosen_by_a_threshold(self):
        program = ("import torch\nx = torch.rand(4096, device='cuda')\nsize = 256 if x.mean().item() > 0.5 else 128\n"
                   "print(torch.zeros(size, device='cuda').numel())\n")
        lines, marks = self.dry(program)
        self.assertEqual((lines, [m[2] for m in marks if m[0] == "routed"], [m for m in marks if m[0] == "open"]), (["256"], [LEVEL], []))
        found = [self.dry(program, HEADROOM_DRY_ROUTING=way)[0][0] for way in self.asked(marks) if way.startswith(("random+above", "random+below"))]
        self.assertEqual(found, ["256", "128"])
        of_it = program.replace("256 if x.mean().item() > 0.5 else 128", "int(x.mean().item() * 9) if x.max().item() > 0.5 else 128")
        self.assertTrue([m for m in self.dry(of_it)[1] if m[0] == "open"], "a size is made of the number itself")

    def test_numbers_on_the_host_that_are_held_against_a_threshold_are_above_it_or_below(self):
        lines, marks = self.dry(HELD_ON_HOST)
        self.assertEqual((lines, [m[2] for m in marks if m[0] == "routed"], [m for m in marks if m[0] == "open"]), (["0"], [LEVEL], []))
        self.assertEqual(self.asked(marks)[0], "random+above:100")
        self.assertEqual(self.dry(HELD_ON_HOST, HEADROOM_DRY_ROUTING="random+above:100")[0], ["4096"])
        listed = "import torch\nx = torch.rand(99, device='cuda')\nprint(len([i for i, s in enumerate(x.tolist()) if s > 0.8]))\n"
        self.assertEqual([m[2] for m in self.dry(listed)[1] if m[0] == "routed"], [LEVEL])
        self.assertTrue([m for m in self.dry(HELD_ON_HOST.replace("> 0.9", "> scores.mean()"))[1] if m[0] == "open"], "not by a threshold")


if __name__ == "__main__":
    unittest.main()
