"""Values of the card that nobody knows: what stands for them, and the sizes that follow."""

import importlib.util
import unittest

from dry_program import Dry


class Guesses(Dry):
    def test_unknown_values_follow_rules_and_are_told_with_their_line(self):
        program = """
            import torch
            x = torch.randn(64, 16, device="cuda")
            i = torch.topk(x, 2)[1]
            print(torch.nn.functional.one_hot(i, 16).sum((0, 1)).tolist())
            print(torch.isnan(x).any().item(), torch.isfinite(x).all().item(), x[x > 0].shape[0], x.argmax(-1)[0].item())
        """
        lines, marks = self.dry(program)
        counts = eval(lines[0])
        self.assertEqual((sum(counts), lines[1]), (128, "False True 512 8"))
        self.assertGreater(max(counts), min(counts))  # at random, and the same in every run
        self.assertEqual(self.dry(program)[0][0], lines[0])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0][0], str([8] * 16))
        routed = lambda marks: [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"]
        self.assertEqual(routed(marks), [("program.py:5", 0), ("program.py:6", 1)])
        boxes = "import torch\nx = torch.randn(64, device='cuda')\nbest = x.topk(16)[0]\nprint((best > 0.1).nonzero().shape[0])\n"
        lines, marks_of_boxes = self.dry(boxes)
        self.assertEqual((lines, routed(marks_of_boxes)), (["8"], [("program.py:4", 1)]), "how much of a mask is true")
        told = {m[1].rsplit("/", 1)[1] for m in marks if m[0] == "value"}
        self.assertEqual(told, {"program.py:5 int64", "program.py:6 bool", "program.py:6 int64"})
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0][0], str([64, 64] + [0] * 14))
        shares = "measured:" + ",".join(["9"] + ["1"] * 15)
        counts = eval(self.dry(program, HEADROOM_DRY_ROUTING=shares)[0][0])
        self.assertEqual((sum(counts), counts[0] == max(counts)), (128, True))

    def test_places_that_a_program_made_least_are_not_among_the_largest(self):
        """As models leave out a spectrum's mean, a token, or the beams that do not yet exist. Where too few others are there, they are."""
        program = """
            import torch
            strength = torch.fft.rfft(torch.randn(4, 64, 8, device="cuda"), dim=1).abs().mean(0).mean(-1)
            strength[0] = 0
            scores = torch.randn(4, 40, device="cuda")
            scores[:, :2] = -torch.inf
            beams = torch.cat([torch.full((8, 3), -1e9, device="cuda"), torch.randn(8, 6, device="cuda")], 1)
            better = torch.randn(8, device="cuda")
            better[0] = 1.0
            print(torch.topk(strength, 3)[1].min().item() > 0, scores.topk(4, dim=-1)[1].min().item() > 1, beams.topk(3)[1].min().item() > 2)
            print(sorted(strength.topk(33)[1].tolist()) == list(range(33)), sorted(better.topk(8, largest=False)[1].tolist()) == list(range(8)))
        """
        for how in ("random", "balanced", "worst"):
            self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING=how)[0], ["True True True", "True True"], how)

    def test_a_comparison_of_unknown_numbers_that_is_asserted_holds(self):
        """As a solver of differential equations asserts that its steps move on. One of known numbers ends the program, and elsewhere nothing changes."""
        program = """
            import torch
            t, dt = torch.randn(99, device="cuda").mean(), torch.randn(99, device="cuda").norm()
            assert t + dt > t, f"underflow in {dt}"
            assert (t - dt != t) & (t <= t + dt) and t > t - dt
            try:
                assert torch.tensor(1.0, device="cuda") > torch.tensor(2.0, device="cuda")
            except AssertionError:
                print("known", (t + dt > t).item())
        """
        self.assertEqual(self.dry(program)[0], ["known False"])

    def test_a_mask_beside_its_complement_has_as_many_true_places_in_each_run(self):
        program = """
            import torch
            score, at = torch.randn(4, 500, device="cuda"), torch.arange(500, device="cuda").expand(4, 500)
            begins = score > 0.5
            ends = torch.full_like(at, 500)
            all_of = torch.cat([at, ends], dim=1)[torch.cat([begins, ~begins], dim=1)].reshape(4, 500)
            first = all_of[:, : begins.sum(dim=1).max()]
            print(first.shape[1], int(first.sum()), all_of.max().item())
            begins |= score > 2
            print(at[begins].shape[0])
        """
        said = {how: self.dry(program, HEADROOM_DRY_ROUTING=how) for how in ("random", "balanced", "worst")}
        self.assertEqual({how: lines for how, (lines, _) in said.items()},
                         {"random": ["250 249000 500", "1000"], "balanced": ["0 0 500", "0"], "worst": [f"500 {4 * sum(range(500))} 499", "2000"]})
        self.assertIn(("program.py:6", 1), [(m[1].rsplit("/", 1)[1], m[2]) for m in said["random"][1] if m[0] == "routed"])

    def test_a_check_of_all_holds_whatever_runs_before_it_is_read(self):
        lines, _ = self.dry("""
            import torch
            x = torch.randn(100000, device="cuda")
            fine = torch.all(x > -9)
            words = f"not all of {x.abs().max()} {x}"
            torch._check_tensor_all_with(ValueError, fine, lambda: words)
            fine, more = (x < 9).all(), (x.exp() > 0).all()
            y = x.square().sum()
            print((fine & more).item(), bool(fine), (x < 9).all(0).shape == fine.shape)
        """)
        self.assertEqual(lines, ["True True True"])

    def test_what_a_method_lets_go_is_gone_though_its_module_was_looked_for(self):
        program = """
            import torch
            class Router:
                def largest(self, x):
                    return x.topk(2)[1]
                def scores(self, x):
                    if self is None:
                        return lambda: self  # a cell
                    x = x + 1
                    self.largest(x)
                    before = torch.cuda.memory_allocated()
                    x = None
                    return before - torch.cuda.memory_allocated()
            print(Router().scores(torch.randn(1 << 18, 4, device="cuda")))
        """
        self.assertEqual(self.dry(program)[0], [str(4 << 20)])

    def test_how_many_proposed_words_are_right_is_not_known(self):
        """Both models choose the word in the middle of a row, by a rule; that does not make them agree."""
        program = """
            import torch
            words = torch.randint(100, (1, 8), device="cuda")
            for _ in range(4):
                words = torch.cat([words, torch.randn(1, 100, device="cuda").argmax(-1, keepdim=True)], 1)
            chosen = torch.randn(1, 5, 100, device="cuda").argmax(-1)
            right = (chosen[:, :4] == words[:, -4:]).long().cumprod(1).sum()
            wrong = (~(words[:, -4:] != chosen[:, :4])).cumsum(1)
            print(int(right), wrong.tolist()[0], (chosen == chosen).tolist()[0][1])
        """
        lines, marks = self.dry(program)
        self.assertEqual(lines, ["1 [1, 1, 2, 2] True"])
        self.assertEqual([(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"], [("program.py:9", 1)])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0][0][:14], "0 [0, 0, 0, 0]")
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0][0][:14], "4 [1, 2, 3, 4]")

    def test_the_one_expert_of_each_token_is_any_of_them(self):
        """As Switch's router chooses, by the index of the largest. Where no module chooses by it, it is the one in the middle; so is a next word."""
        program = """
            import torch
            class Switch(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.router = torch.nn.Linear(16, 8)
                def forward(self, x):
                    p = self.router(x).softmax(-1)
                    most, to = torch.max(p, dim=-1, keepdim=True)
                    again = p.argmax(-1)
                    best = p.max(-1).values
                    print([(to[:, 0] == e).nonzero().shape[0] for e in range(8)], [(again == e).nonzero().shape[0] for e in range(8)])
                def generate(self, x):
                    return self.router(x).argmax(-1)
            class Largest(Switch):
                def forward(self, x):
                    best, _ = self.router(x).max(dim=-1)
                    print((best > 0).nonzero().shape[0])
            x = torch.randn(64, 16, device="cuda")
            model = Switch().cuda()
            model(x)
            print(set(model.generate(x).tolist()))
        """
        lines, marks = self.dry(program)
        for counts in eval(lines[0].replace('] [', '], [')):
            self.assertEqual((sum(counts), min(counts) > 0, max(counts) > min(counts)), (64, True, True), lines)
        self.assertEqual(lines[1], "{4}")
        self.assertIn(0, [m[2] for m in marks if m[0] == "routed"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0][0], f"{[8] * 8} {[8] * 8}")
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0][0], f"{[64] + [0] * 7} {[64] + [0] * 7}")
        lines, marks = self.dry(program.replace("model = Switch()", "model = Largest()"))
        self.assertEqual((lines, {m[2] for m in marks if m[0] == "routed"}), (["32", "{4}"], {1}), "its indices are not kept")

    def test_what_checkpointing_runs_again_goes_to_the_same_experts(self):
        """Else the shapes differ from those of the forward pass, and PyTorch ends the program."""
        lines, _ = self.dry("""
            import torch
            from torch.utils.checkpoint import checkpoint
            class Experts(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.router, self.up = torch.nn.Linear(16, 8), torch.nn.Linear(16, 16)
                def forward(self, x):
                    to = self.router(x).topk(2)[1]
                    rows = [(to == e).nonzero()[:, 0] for e in range(8)]
                    sizes.append([len(r) for r in rows])
                    return sum(torch.zeros_like(x).index_add(0, r, self.up(x[r]).relu()) for r in rows)
            layers = [Experts().cuda() for _ in range(3)]
            for reentrant in (True, False):
                for _ in range(2):
                    sizes, x = [], torch.randn(64, 16, device="cuda", requires_grad=True)
                    for layer in layers:
                        x = x + checkpoint(layer, x, use_reentrant=reentrant)
                    x.sum().backward()
                    print(len(sizes), sizes[:3] == sizes[:2:-1], sizes[0] != sizes[1])
        """)
        self.assertEqual(lines, ["6 True True"] * 4)

    def test_sizes_by_values_are_run_with_nothing_and_with_all(self):
        program = """
            import torch
            x = torch.randn(64, device="cuda")
            print(x[x > 0].shape[0], torch.unique((x * 9).int()).shape[0], (torch.randn(3000, 2000, device="cuda") > 0).nonzero().shape[0])
        """
        routed = lambda marks: [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"]
        lines, marks = self.dry(program)
        self.assertEqual((lines, routed(marks)), (["32 64 3000000"], [("program.py:4", 1), ("program.py:4", 4)]))
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], ["0 1 0"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0], ["64 64 6000000"])
        known = "import torch\nx = torch.arange(64, device='cuda')\nprint(x[x > 9].shape[0], torch.unique(x // 2).shape[0])\n"
        lines, marks = self.dry(known)
        self.assertEqual((lines, routed(marks)), (["54 32"], []), "what is known is no guess")

    def test_nearly_all_of_a_mask_is_another_share_of_each_and_the_same_for_whoever_asks(self):
        program = """
            import torch
            x = torch.randn(8, 6400, device="cuda")
            masks = [row > 0 for row in x]
            counts = [len(row[m]) for row, m in zip(x, masks)]
            print(counts == [int(m.sum()) for m in masks] == [len((2 * row)[m.view(80, 80).flatten()]) for row, m in zip(x, masks)])
            print(len(set(counts)) > 3, min(counts) >= 6300, max(counts) <= 6400, len(x[:, 0][x[:, 0] > 0]))
            several = [x > n for n in range(8)]
            print(all(len(x[m].split(m.sum(1).tolist())) == 8 for m in several), len({len(x[m]) for m in several}) > 3)
        """
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="nearly")[0], ["True", "True True True 8", "True True"])
        self.assertEqual(self.dry(program)[0], ["True", "False False True 4", "True False"])

    def test_as_many_of_a_mask_are_counted_as_it_chooses(self):
        program = """
            import torch
            x = torch.randn(64, 3, device="cuda")
            faint = x[:, 0] < 0
            x[faint] = torch.rand(int(faint.sum()), 3, device="cuda")
            n, turns = torch.count_nonzero(faint).item(), 0
            while (x > 9).sum() > 0:
                turns += 1
            print(n, 0 < turns < 99)
        """
        self.assertEqual(self.dry(program)[0], ["32 True"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0], ["64 True"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], ["0 False"])

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_sizes_by_drawn_numbers_are_run_with_other_draws(self):
        program = """
            import torch
            ids = torch.randint(0, 100, (300,), device="cuda")
            print((ids < 30).nonzero().shape[0], len(ids[ids > 50]))
        """
        lines, marks = self.dry(program)
        self.assertEqual([(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"], [("program.py:4", 2)])
        self.assertEqual(len({lines[0], *(self.dry(program, HEADROOM_DRY_ROUTING=how)[0][0] for how in ("balanced", "worst"))}), 3)

    def test_what_a_kernel_of_another_library_writes_is_not_known(self):
        """It fills a mask of zeros with the boxes that are kept."""
        lines, marks = self.dry("""
            import torch, torchvision
            x = torch.rand(100, 4, device="cuda")
            print(torchvision.ops.nms(x, torch.rand(100, device="cuda"), 0.5).shape[0])
        """)
        self.assertEqual((lines, [m[2] for m in marks if m[0] == "routed"]), (["50"], [1]))

    def test_a_tensor_as_large_as_a_value_says_may_need_more(self):
        opened = lambda program: [m[1].split("(")[1].split(")")[0] for m in self.dry("import torch\n" + program)[1] if m[0] == "open"]
        self.assertEqual(opened("n = (torch.randn(9, device='cuda') * 5).int()\ntorch.repeat_interleave(torch.ones(9, device='cuda'), n)\n"), ["repeat_interleave"])
        self.assertEqual(opened("n = (torch.randn(9, device='cuda') * 5).int()\ntorch.repeat_interleave(torch.ones(9, device='cuda'), n, output_size=20)\n"), [])
        self.assertEqual(opened("torch.repeat_interleave(torch.ones(9, device='cuda'), torch.arange(9, device='cuda'))\n"), [])
        for said, told in (("", ["bincount"]), (", minlength=9", []), (", None, 9", [])):
            self.assertEqual(opened(f"n = (torch.randn(9, device='cuda') * 5).long()\ntorch.bincount(n{said})\n"), told)

    def test_sums_of_sparse_gradients_have_as_many_rows_as_places_differ(self):
        lines, marks = self.dry("""
            import torch
            def rows(places):
                values = torch.randn(len(places), 8, device="cuda")
                return torch.sparse_coo_tensor(places[None], values, (100, 8)).coalesce()._nnz()
            print(rows(torch.tensor([5, 7, 5, 5, 9], device="cuda")), rows(torch.empty(5, dtype=torch.int64, device="cuda")))
            table = torch.nn.Embedding(100, 8, sparse=True).cuda()
            table(torch.tensor([[1, 2, 1], [2, 2, 4]]).cuda()).sum().backward()
            print(table.weight.grad.coalesce().indices().shape)
        """)
        self.assertEqual(lines, ["3 5", "torch.Size([1, 3])"])  # of unknown places all are taken to differ
        self.assertEqual([m[1].rsplit("/", 1)[1] for m in marks if m[0] == "value"], ["program.py:5 int64"])

    def test_a_row_of_an_unknown_mask_may_have_any_and_a_whole_one_has_none(self):
        """Beam search goes on while any running beam of a text may still win; a program asks of all numbers whether any is wrong."""
        lines, _ = self.dry("""
            import torch
            scores, finished = torch.randn(4, 3, device="cuda"), torch.full((4, 1), -1e9, device="cuda")
            goes_on = torch.ones(4, 1, dtype=torch.bool, device="cuda")
            for _ in range(3):
                goes_on = goes_on & torch.any(scores > finished, dim=-1, keepdim=True)
            print(torch.any(goes_on).item(), (scores > 9).any().item())
        """)
        self.assertEqual(lines, ["True False"])

    def test_an_if_that_works_on_what_a_mask_has_takes_some_to_be_there(self):
        """Splines, and fields of radiance, ask so before they index; a detector asks the same way whether a box is wrong."""
        program = """
            import torch
            x, turns = torch.randn(40, 3, device="cuda"), []
            inside, bad = (x > -1).all(1), x > 9
            if inside.any():
                turns.append(x[inside].shape[0])
            if torch.any(x > 1) and True:
                turns.append(len((x > 1).nonzero()))
            if bad.any():
                print("wrong")
            if (x > 9).any():
                at = torch.where(x > 9)[0]
                torch._assert(False, f"{at}")
            def loss(mask):
                if not mask.any():
                    return 0
                return len(x[mask])
            turns.append(loss(inside))
            n = 0
            while True:
                n += 1
                if not inside.any():
                    break
            print(turns, n, x[bad].shape[0] if bad.any() else "none")
        """
        lines, marks = self.dry(program)
        self.assertEqual(lines, ["[20, 60, 20] 17 60"])
        self.assertEqual([m[2] for m in marks if m[0] == "routed"], [1])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], ["[0] 1 none"])

    def test_floats_are_finite_however_a_program_asks(self):
        lines, _ = self.dry("""
            import torch
            x = torch.randn(40, 3, device="cuda")
            finite = torch.isfinite(x)
            bad = ~finite
            if bad.any():
                print(x[bad])
                x = torch.where(bad, 0, x)
                print("mended")
            print(x[finite].shape[0], x[x != x].shape[0], x[x == x.clone()].shape[0])
        """)
        self.assertEqual(lines, ["120 0 60"])

    def test_an_if_that_ends_the_program_is_not_gone_into(self):
        lines, _ = self.dry("""
            import sys
            import torch
            x = torch.randn(40, device="cuda")
            bad = x > 9
            def raise_for(mask):
                raise ValueError(mask)
            if bad.any():
                n = int(bad.sum())
                sys.exit(n)
            if bad.any():
                raise_for(bad)
            def check(mask):
                if not mask.any():
                    return
                raise ValueError(mask)
            def is_fine(mask):
                if not mask.any():
                    return True
                print("wrong")
                return False
            check(bad)
            assert is_fine(bad)
            for mask in bad, bad:
                if not mask.any():
                    continue
                raise ValueError(mask)
            def checked(mask):
                if not mask.any():
                    return x
                else:
                    raise ValueError(mask)
            checked(bad)
            print("done")
        """)
        self.assertEqual(lines, ["done"])

    def test_an_if_that_calls_what_only_complains_is_not_gone_into(self):
        """Methods, functions of another module and those that are made inside are looked up, and not run."""
        lines, _ = self.dry("""
            import importlib, logging, os, sys
            with open(os.path.join(os.path.dirname(__file__), "checks_of_rows.py"), "w") as f:
                f.write("def refuse(rows):\\n    text = str(rows.shape)\\n    raise ValueError(text)\\n")
            sys.path.insert(0, os.path.dirname(__file__))
            importlib.invalidate_caches()
            import checks_of_rows
            import torch
            x = torch.randn(40, device="cuda")
            class Model:
                log = logging.getLogger("model")
                def report(self, rows):
                    print("reported", rows.nonzero().shape[0])
                    return None
                def refuse(self, rows):
                    "Always."
                    raise ValueError(rows)
                def hide(self, rows):
                    print("hidden")
                    x[rows] = 0
                def keep(self, rows):
                    self.log.info("kept")
                    self.rows = torch.where(rows, 0, x)
                    print("kept")
                def gather(self, rows):
                    print("gathered")
                    self.gathered.append(x[rows])
                def checked(self, rows):
                    self.assert_finite(rows)
                    print("checked", len(x[rows]) > 0)
                    return rows
                gathered = []
                def assert_finite(self, rows):
                    assert torch.isfinite(x).all()
                def forward(self, bad):
                    def complain(rows):
                        self.log.error(rows)
                    if bad.any():
                        self.report(bad)
                    if bad.any():
                        self.refuse(bad)
                    if bad.any():
                        at = bad.nonzero()
                        self.refuse(at)
                    if torch.any(bad):
                        complain(bad)
                    if bad.any():
                        checks_of_rows.refuse(bad)
                    if bad.any():
                        self.hide(bad)
                    if bad.any():
                        self.keep(bad)
                    if bad.any():
                        self.gather(bad)
                    if bad.any():
                        self.checked(bad)
            Model().forward(x > 9)
        """)
        self.assertEqual(lines, ["hidden", "kept", "gathered", "checked True"])

    def test_an_unknown_float_is_one_that_a_program_can_divide_by_and_compare(self):
        lines, marks = self.dry("""
            import math
            import torch
            x = torch.randn(64, 64, device="cuda")
            loss = x.square().mean()
            print(10 * math.log10(1 / loss.item()) > 0, 1 / loss.cpu().item(), math.log(1 - float(loss)) < 0, math.exp(loss.item()) > 1)
            print([loss.to(t).item() for t in (torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64)])
            print(x[0, :3].tolist(), x[:2, 0].cpu().numpy().tolist(), bool(loss), x.double().sum(0).cpu().dtype)
            kept = torch.zeros(3, device="cuda")
            kept[1] = loss
            print(kept.tolist(), kept.cpu().double().tolist())
            print(bool(loss > 0), bool(loss < float("inf")), bool(torch.isnan(loss)), bool(torch.isfinite(loss)), bool(loss != loss))
            best = torch.tensor(1e9, device="cuda")
            print(bool(loss < best), bool(loss == 0), (loss > 2).item(), x.argmax().item(), (x > 0).sum().item())
            assert loss > 0 and loss.item() > 0
        """)
        self.assertEqual(lines, ["True 1.3333333333333333 True True", "[0.75, 0.75, 0.75, 0.75, (0.75+0.75j)]",
                                 "[0.75, 0.75, 0.75] [0.75, 0.75] True torch.float64", "[0.0, 0.75, 0.0] [0.0, 0.75, 0.0]",
                                 "True True False True False", "True False False 2048 2048"])
        self.assertIn(("value", "program.py:6 float32"), [(m[0], m[1].rsplit("/", 1)[1]) for m in marks if m[0] == "value"])


if __name__ == "__main__":
    unittest.main()
