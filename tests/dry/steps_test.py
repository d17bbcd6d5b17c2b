"""Steps of a program: what ends one, and after which the program ends."""

import os
import tempfile
import unittest

from dry_program import Dry, NET


class Steps(Dry):
    def steps_until_they_agree(self, marks):
        """The program goes on after them for a short time, and ten steps at most."""
        steps = [m[2] for m in marks if m[0] == "step"]
        self.assertLessEqual(len(steps), 13)
        return [m[2] for m in marks[:[m[0] for m in marks].index("settled")] if m[0] == "step"]

    def test_the_program_ends_after_the_steps_that_were_asked_for(self):
        lines, marks = self.dry(NET + "import atexit\natexit.register(print, 'at exit')\no = torch.optim.AdamW(net.parameters())\n"
                                "while True:\n    step(o)\n    print('step')\n", HEADROOM_DRY_STEPS="4")
        self.assertEqual(lines, ["step"] * 3 + ["at exit"])
        self.assertEqual([m[2] for m in marks if m[0] == "step"], [1, 2, 3, 4])
        self.assertEqual([m[1] for m in marks if m[0] == "end"], ["4 optimizer steps were asked for"])
        phases = [m[1] for m in marks if m[0] == "phase"]
        self.assertEqual(phases[:4], ["backward", "", "optimizer", ""])
        self.assertLessEqual({"blocks.0.up", "blocks.3", "words"}, {m[1] for m in marks if m[0] == "scope"})

    def test_several_optimizers_are_one_step(self):
        _, marks = self.dry(NET + "a, b = (torch.optim.SGD(p.parameters(), lr=0.1) for p in (net.words, net.blocks))\n"
                            "for _ in range(3):\n    net(ids).sum().backward()\n    for o in (a, b, a, b):\n        o.step()\n", HEADROOM_DRY_STEPS="9")
        self.assertEqual([m[2] for m in marks if m[0] == "step"], [1, 2, 3])

    def test_an_optimizer_inside_a_backward_pass_ends_the_step_with_it(self):
        """What is saved for backward is then of one step."""
        _, marks = self.dry(NET + "o = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}\ndef hook(p):\n    o[p].step()\n    o[p].zero_grad()\n"
                            "for p in net.parameters():\n    p.register_post_accumulate_grad_hook(hook)\nfor _ in range(3):\n    net(ids).sum().backward()\n",
                            HEADROOM_DRY_STEPS="9")
        kinds = [m[0] if m[0] == "step" else m[1] for m in marks if m[0] in ("step", "phase")]
        self.assertEqual(kinds.count("step"), 3)
        for at in [i for i, kind in enumerate(kinds) if kind == "step"]:
            self.assertEqual(kinds[at - 1], "", "no phase is open")
            self.assertEqual(kinds[at + 1:at + 2], ["backward"][:len(kinds) - at - 1], "the next step's")

    def test_without_a_backward_pass_each_step_of_the_optimizer_counts(self):
        _, marks = self.dry(NET + "import torch.func as f\no = torch.optim.SGD(net.parameters(), lr=0.1)\nw = dict(net.named_parameters())\nfor _ in range(3):\n"
                            "    v = {k: torch.randn_like(p) for k, p in w.items()}\n    _, d = f.jvp(lambda p: f.functional_call(net, p, (ids,)).sum(), (w,), (v,))\n"
                            "    for k, p in w.items():\n        p.grad = (d * v[k]).detach()\n    o.step()\n", HEADROOM_DRY_STEPS="9")
        self.assertEqual([m[2] for m in marks if m[0] == "step"], [1, 2, 3])

    def test_a_program_that_updates_by_hand_ends_as_one_with_an_optimizer(self):
        by_hand = NET + ("import itertools\ndef update():\n    net(ids).sum().backward()\n    for p in net.parameters():\n        p.data.add_(p.grad, alpha=-0.1)\n"
                         "        p.grad = None\n")
        _, marks = self.dry(by_hand + "for _ in itertools.count():\n    update()\n")
        self.assertEqual(self.steps_until_they_agree(marks), [1, 2])
        self.assertEqual([m[1] for m in marks if m[0] == "end"], ["it makes no optimizer, and the peaks of two backward passes agree"])
        _, marks = self.dry(by_hand + "for _ in range(100):\n    update()\no = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(3):\n    step(o)\n",
                            HEADROOM_DRY_STEPS="9")
        self.assertEqual([(m[1], m[2]) for m in marks if m[0] == "step"], [("SGD", 1), ("SGD", 2), ("SGD", 3)])

    def opened(self, program):
        return [(m[1].split(" ")[0], m[2]) for m in self.dry(NET + program, HEADROOM_DRY_STEPS="99")[1] if m[0] == "open"]

    def searches(self, optimizer, **settings):
        """What is guessed of them, and how often each step of two asked for the loss; then how many directions are kept."""
        lines, marks = self.dry(NET + f"o = torch.optim.{optimizer}\nasked = 0\ndef closure():\n    global asked\n    asked += 1\n    o.zero_grad()\n    l = net(ids).sum()\n"
                                "    l.backward()\n    return l\nfor _ in range(2):\n    o.step(closure)\n    print(asked)\n    asked = 0\n"
                                "print(*(len(s['old_dirs']) for s in o.state.values() if 'old_dirs' in s), o.param_groups[0].get('tolerance_change'))\n",
                                HEADROOM_DRY_STEPS="99", **settings)
        self.assertEqual([m for m in marks if m[0] == "open"], [])
        return [m[2] for m in marks if m[0] == "routed"], lines

    def test_searches_that_values_end_are_made_short_and_long(self):
        """LBFGS asks for the loss, and keeps directions, until values of the card end that; in another run until its settings do."""
        few, many, searches = {}, {"HEADROOM_DRY_ROUTING": "balanced"}, [7]
        self.assertEqual(self.searches("LBFGS(net.parameters(), max_iter=4)", **few), (searches, ["1", "1", "1 1e-09"]))
        self.assertEqual(self.searches("LBFGS(net.parameters(), max_iter=4)", **many), (searches, ["4", "4", "7 1e-09"]))
        self.assertEqual(self.searches("LBFGS(net.parameters(), max_iter=4, history_size=5)", **many), (searches, ["4", "4", "5 1e-09"]))
        self.assertEqual(self.searches("LBFGS(net.parameters(), max_iter=4, max_eval=3, line_search_fn='strong_wolfe')", **many), (searches, ["17", "17", "7 1e-09"]))
        self.assertEqual(self.searches("SGD(net.parameters(), lr=0.1)", **many), ([], ["1", "1", "None"]))

    def test_threads_that_train_at_once_are_told(self):
        train = ("import threading\nturn = threading.Barrier(2)\ndef train(at_once):\n    p = nn.Parameter(torch.ones(8, device='cuda'))\n    o = torch.optim.SGD([p], lr=0.1)\n"
                 "    for _ in range(2):\n        p.sum().backward()\n        o.step()\n        if at_once: turn.wait()\n")
        two = "threads = [threading.Thread(target=train, args=(True,)) for _ in range(2)]\nfor t in threads: t.start()\nfor t in threads: t.join()\n"
        self.assertEqual(self.opened(train + two), [("several", 2)])
        after = "train(False)\nfor _ in range(2):\n    t = threading.Thread(target=train, args=(False,))\n    t.start()\n    t.join()\n"
        self.assertEqual(self.opened(train + after), [])

    def test_a_step_in_a_hook_is_of_the_thread_that_waits_for_it(self):
        """Trainer's layer-by-layer optimizers step so in autograd's thread, then another optimizer in the main one."""
        hooks = ("p = nn.Parameter(torch.ones(8, device='cuda'))\na = torch.optim.SGD([p], lr=0.1)\np.register_post_accumulate_grad_hook(lambda p: a.step())\n"
                 "p.sum().backward()\nq = nn.Parameter(torch.ones(8, device='cuda'))\no = torch.optim.SGD([q], lr=0.1)\nfor _ in range(2):\n    q.sum().backward()\n    o.step()\n")
        self.assertEqual(self.opened(hooks), [])

    def test_optimizers_that_packages_bring_take_steps(self):
        """fastai's and Keras's are none of torch.optim's."""
        for module, name, method in (("fastai.optimizer", "Optimizer", "step"), ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply")):
            with self.subTest(module), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, *module.split("."))
                os.makedirs(os.path.dirname(path))
                with open(path + ".py", "w") as f:
                    f.write(f"class {name}:\n    def __init__(self, weights):\n        self.weights = list(weights)\n    def {method}(self):\n"
                            "        for p in self.weights:\n            p.data.add_(p.grad, alpha=-0.1)\n            p.grad = None\n")
                _, marks = self.dry(NET + f"import sys\nsys.path.insert(0, {folder!r})\nfrom {module} import {name}\no = {name}(net.parameters())\n"
                                    f"while True:\n    net(ids).sum().backward()\n    o.{method}()\n", HEADROOM_DRY_STEPS="3")
                self.assertEqual([(m[1], m[2]) for m in marks if m[0] == "step"], [(name, 1), (name, 2), (name, 3)])
                self.assertIn("optimizer", [m[1] for m in marks if m[0] == "phase"])

    def test_a_package_whose_first_line_imports_torch_is_waited_for(self):
        """fastai.optimizer is half made then. Where it has no such optimizer, or fails, the program goes on with torch's."""
        own = "class Optimizer:\n    def __init__(self, weights): pass\n    def step(self): pass\n"
        for text, steps, notes in ((own, ["Optimizer"], 0), ("", ["SGD"], 1), ("raise ImportError\n", ["SGD"], 0)):
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                os.makedirs(os.path.join(folder, "fastai"))
                with open(os.path.join(folder, "fastai", "optimizer.py"), "w") as f:
                    f.write("import torch\n" + text)
                lines, marks = self.dry(f"import sys\nsys.path.insert(0, {folder!r})\ntry:\n    import fastai.optimizer as made\nexcept ImportError:\n    made = None\n" + NET +
                                        "kind = getattr(made, 'Optimizer', None)\no = kind(net.parameters()) if kind else torch.optim.SGD(net.parameters(), lr=0.1)\n"
                                        "net(ids).sum().backward()\no.step()\nprint(type(made and made.__spec__).__name__)\n")
                self.assertEqual(lines, ["NoneType" if "raise" in text else "ModuleSpec"])
                self.assertEqual([m[1] for m in marks if m[0] == "step"], steps)
                self.assertEqual(len([m for m in marks if m[0] == "note" and "could not begin with fastai.optimizer" in m[1]]), notes, marks)

    def test_a_package_s_step_that_fails_ends_its_phase(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "fastai"))
            with open(os.path.join(folder, "fastai", "optimizer.py"), "w") as f:
                f.write("class Optimizer:\n    def step(self):\n        raise ValueError\n")
            _, marks = self.dry(NET + f"import sys\nsys.path.insert(0, {folder!r})\nfrom fastai.optimizer import Optimizer\ntry:\n    Optimizer().step()\n"
                                "except ValueError:\n    pass\nnet(ids).sum().backward()\n")
        self.assertEqual([m[1] for m in marks if m[0] == "phase"], ["optimizer", "", "backward", ""])

    def test_a_loader_that_fails_to_end_leaves_the_programs_own_end(self):
        lines, _ = self.dry(NET + "import atexit, sys\natexit.register(print, 'at exit')\nfrom headroom_dry import steps\ndef fails():\n    raise OSError\nsteps._end_workers = fails\n"
                            "o = torch.optim.SGD(net.parameters(), lr=0.1)\nwhile True:\n    step(o)\n", HEADROOM_DRY_STEPS="2")
        self.assertEqual(lines, ["at exit"])

    def test_a_search_of_scipy_by_values_of_the_card_succeeds(self):
        """Of unknown values none is less than another, so a line search gives up. Where the host's values fail it, it stays failed."""
        scipy = ("class Result: pass\ndef minimize(fun, x0):\n    r = Result()\n    r.success, r.status, r.message = fun(x0) < fun(x0), 2, 'ABNORMAL'\n    return r\nminimize_scalar = root = minimize\n")
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "scipy", "optimize"))
            open(os.path.join(folder, "scipy", "__init__.py"), "w").close()
            for file, text in (("__init__.py", "from ._minimize import minimize, minimize_scalar\nfrom ._root import root\n"), ("_minimize.py", scipy), ("_root.py", scipy)):
                with open(os.path.join(folder, "scipy", "optimize", file), "w") as f:
                    f.write(text)
            lines, marks = self.dry(NET + f"import sys\nsys.path.insert(0, {folder!r})\nfrom scipy.optimize import minimize, minimize_scalar, root\n"
                                    "for search in (minimize, minimize_scalar, root):\n    for loss in (lambda x: net(ids).sum().item(), lambda x: 1.0):\n"
                                    "        r = search(loss, 0)\n        print(r.success, r.status)\n")
            self.assertEqual(lines, ["True 0", "False 2"] * 3)
            self.assertEqual([m[1].split(": ")[1].split(" ")[1] for m in marks if m[0] == "note"], ["minimize"])
            # SciPy first, then torch; and a method of the program's own, which says nothing of success.
            lines, _ = self.dry(f"import sys\nsys.path.insert(0, {folder!r})\nimport scipy.optimize\n" + NET +
                                "print(*(getattr(scipy.optimize, s)(lambda x: net(ids).sum().item(), 0).success for s in ('minimize', 'minimize_scalar', 'root')))\n")
            self.assertEqual(lines, ["True True True"])
            for file in "_minimize.py", "_root.py":
                with open(os.path.join(folder, "scipy", "optimize", file), "w") as f:
                    f.write("def minimize(fun, x0):\n    return fun(x0), x0\nminimize_scalar = root = minimize\n")
            lines, _ = self.dry(NET + f"import sys\nsys.path.insert(0, {folder!r})\nfrom scipy.optimize import minimize\nprint(minimize(lambda x: net(ids).sum().item(), 7)[1])\n")
            self.assertEqual(lines, ["7"])

    def test_without_a_number_it_ends_once_two_steps_agree(self):
        _, marks = self.dry(NET + "o = torch.optim.AdamW(net.parameters())\nwhile True:\n    step(o)\n")
        self.assertEqual(self.steps_until_they_agree(marks), [1, 2, 3])

    def test_a_loop_until_the_loss_is_small_trains_on(self):
        for head, check in (("while loss.item() > 0.01:", ""), ("while acc.item() < 0.99:", ""), ("for _ in range(50):", "    if loss.item() < 1e-4:\n        break\n")):
            with self.subTest(head):
                _, marks = self.dry(NET + "o = torch.optim.AdamW(net.parameters())\nloss = step(o)\nacc = 1 - loss\n" + head + "\n    loss = step(o)\n    acc = 1 - loss\n"
                                    + check)
                self.assertEqual(self.steps_until_they_agree(marks), [1, 2, 3])
                self.assertEqual([m[1] for m in marks if m[0] == "end"], ["the peaks of two optimizer steps agree"])
                self.assertEqual(len([m for m in marks if m[0] == "optimizer"]), 1)

    def test_workers_that_load_data_end_with_the_program_and_leave_nothing(self):
        """Killed ones leave a folder of their sockets each."""
        scratch = os.path.join(self.scratch.name, "of_the_program")
        os.mkdir(scratch)
        _, marks = self.dry("""
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.Linear(8, 1).cuda()
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            def train():
                for x in DataLoader(torch.randn(4000, 8), batch_size=4, num_workers=2, persistent_workers=True, pin_memory=True):
                    net(x.cuda()).sum().backward()
                    optimizer.step()
            train()
        """, HEADROOM_DRY_STEPS="20", TMPDIR=scratch)
        self.assertEqual([m[1] for m in marks if m[0] == "end"], ["20 optimizer steps were asked for"])
        self.assertEqual([name for name in os.listdir(scratch) if name.startswith("pymp")], [])

    def test_a_capture_that_failed_is_no_part_of_the_next(self):
        _, marks = self.dry("""
            import torch
            p = torch.nn.Parameter(torch.ones(64, 64, device="cuda"))
            x, o = torch.ones(64, 64, device="cuda"), torch.optim.SGD([p], lr=0.1)
            def capture(run):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.stream(torch.cuda.Stream()):
                    graph.capture_begin(capture_error_mode="relaxed")
                    run()
                    graph.capture_end()
                return graph
            def trains():
                (p * x).sum().backward()
                o.step()
                raise ValueError("in the capture")
            try:
                capture(trains)
            except ValueError:
                pass
            forward = capture(lambda: p * x)
            for _ in range(3):
                forward.replay()
        """, HEADROOM_DRY_STEPS="9")
        self.assertEqual([m for m in marks if m[0] == "step"], [])


if __name__ == "__main__":
    unittest.main()
