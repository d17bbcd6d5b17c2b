"""Programs of PyTorch, run dry with the observer: values that they read, memory that must not move, steps, substitutes. Exit code 77: skipped.

HEADROOM_DRY_LIBRARY is libheadroom_dry.so. Each program runs in a process of its own; marks are printed by a library of four lines before it."""

import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest

try:
    import torch

    if torch.version.cuda is None:
        print("skipped: this torch has no CUDA")
        sys.exit(77)
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)

SOURCE = os.environ["HEADROOM_SOURCE_DIR"]
LIBRARY = os.environ["HEADROOM_DRY_LIBRARY"]
OBSERVER = os.path.join(SOURCE, "src", "dry", "observer")
MARKS = """
#include <cstdio>
#include <cstdint>
extern "C" void headroom_dry_mark(const char* what, const char* text, std::int64_t value) { std::printf("mark %s|%s|%ld\\n", what, text, long(value)); std::fflush(stdout); }
"""
NET = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.Linear(4 * w, w)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
class Net(nn.Module):
    def __init__(self, w=256, n=4):
        super().__init__()
        self.words, self.blocks, self.out = nn.Embedding(1000, w), nn.ModuleList(Block(w) for _ in range(n)), nn.Linear(w, 1000)
    def forward(self, ids):
        x = self.words(ids)
        for b in self.blocks:
            x = b(x)
        return self.out(x)
torch.manual_seed(0)
net = Net().cuda()
ids = torch.randint(1000, (8, 128), device="cuda")
def step(optimizer, autocast=False):
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        loss = nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


class Dry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = cls.scratch.name
        cls.marks = os.path.join(folder, "marks.so")
        with open(os.path.join(folder, "marks.cpp"), "w") as f:
            f.write(MARKS)
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", os.path.join(folder, "marks.cpp"), "-o", cls.marks], check=True)
        for name in "libcuda.so.1", "libnvidia-ml.so.1":
            os.symlink(os.path.abspath(LIBRARY), os.path.join(folder, name))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def dry(self, program, code=0, **environment):
        """What a program prints, without marks, and its marks as (what, text, value)."""
        folder = self.scratch.name
        path = os.path.join(folder, "program.py")
        with open(path, "w") as f:
            f.write(program if program.startswith("\nimport") else textwrap.dedent(program))
        env = {**os.environ, "LD_PRELOAD": f"{self.marks}:{os.path.abspath(LIBRARY)}", "LD_LIBRARY_PATH": folder, "TRITON_LIBCUDA_PATH": folder,
               "PYTHONPATH": OBSERVER, "HEADROOM_DRY_FOLDER": folder, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout[-2000:] + done.stderr[-2000:])
        lines = done.stdout.split("\n")[:-1]
        marks = [tuple(line[5:].rsplit("|", 1)[0].split("|", 1)) + (int(line.rsplit("|", 1)[1]),) for line in lines if line.startswith("mark ")]
        return [line for line in lines if not line.startswith("mark ")], marks


class Values(Dry):
    def test_a_permuted_tensor_is_forgotten_in_few_pieces(self):
        lines, _ = self.dry("""
            import sys, torch
            library, calls = sys.modules["headroom_dry.library"], [0]
            before = library.forget
            def forget(*words):
                calls[0] += 1
                return before(*words)
            library.forget = forget
            x = torch.ones(2, 500, 8, 31, device="cuda").permute(0, 3, 1, 2)
            y = torch.nn.functional.pad(x, (0, 0, 0, 10))
            print(calls[0] < 5000, calls[0])
            a = torch.arange(24, device="cuda").view(2, 3, 4)
            a.permute(2, 0, 1)[1:3].copy_(torch.rand(2, 2, 3, device="cuda") > 2)
            print(a[..., 0].tolist(), a[..., 3].tolist())
            """)
        self.assertTrue(lines[0].startswith("True"), lines)
        self.assertEqual(lines[1], "[[0, 4, 8], [12, 16, 20]] [[3, 7, 11], [15, 19, 23]]")

    def test_integers_are_what_a_card_computes(self):
        lines, marks = self.dry("""
            import torch
            a = torch.arange(10, device="cuda")
            print((a * 2 + 1).tolist(), (a > 4).all().item(), (a >= 0).all().item(), a.sum().item(), (a % 3).tolist(), (7 - a).tolist())
            m = a % 3 == 0
            print(a[m].tolist(), m.nonzero().flatten().tolist(), a.masked_select(m).tolist(), torch.where(m)[0].tolist())
            print(torch.unique(a // 2).tolist(), torch.bincount(a // 3).tolist(), a.repeat_interleave(a).shape[0])
            print([t.tolist() for t in torch.unique_consecutive(a // 2, return_counts=True)])
            print(torch.tensor([3, 1, 2], device="cuda").sort()[1].tolist(), torch.cat([a, a]).view(4, 5).t().contiguous()[1].tolist())
            b = torch.zeros(3, 5, dtype=torch.long, device="cuda")
            b[:, 1] = torch.arange(3, device="cuda")
            b[:, 3:] = 9
            b += 1
            print(b.tolist(), a.to(torch.int32).float().bool().tolist()[:2])
            z = torch.zeros(4, device="cuda")
            z += 2
            z[1] = 7
            print((z * 3).tolist(), z.max().item(), z.argmax().item(), z.mean().item(), torch.equal(a, a.clone()))
        """)
        self.assertEqual(lines, [
            "[1, 3, 5, 7, 9, 11, 13, 15, 17, 19] False True 45 [0, 1, 2, 0, 1, 2, 0, 1, 2, 0] [7, 6, 5, 4, 3, 2, 1, 0, -1, -2]",
            "[0, 3, 6, 9] [0, 3, 6, 9] [0, 3, 6, 9] [0, 3, 6, 9]",
            "[0, 1, 2, 3, 4] [3, 3, 3, 1] 45",
            "[[0, 1, 2, 3, 4], [2, 2, 2, 2, 2]]",
            "[1, 2, 0] [1, 6, 1, 6]",
            "[[1, 1, 1, 10, 10], [1, 2, 1, 10, 10], [1, 3, 1, 10, 10]] [False, True]",
            "[6.0, 21.0, 6.0, 6.0] 7.0 1 3.25 True"])
        self.assertEqual([m for m in marks if m[0] == "value"], [])

    def test_operations_that_read_inside_tell_guesses_once(self):
        lines, marks = self.dry("""
            import torch
            a, x = torch.arange(10, device="cuda"), torch.randn(100, device="cuda")
            print(torch.equal(a, a + 1), torch.equal(a, a[:5]), torch.equal(a, a.clone()))
            print(torch.equal(x, x + 1))
            print(len(x.unique()))
        """)
        self.assertEqual(lines, ["False False True", "True", "100"])
        told = [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "value"]
        self.assertEqual(told, [("program.py:5 float32", 1), ("program.py:6 float32", 1)])

    def test_large_masks_are_computed_when_they_are_read(self):
        lines, _ = self.dry("""
            import torch
            i = torch.arange(1024, device="cuda")
            m = i[:, None] >= i[None, :]
            n = m & (i[:, None] - i[None, :] < 100)
            print(n.sum().item(), m.all().item(), m.nonzero().shape[0])
            k = ~m
            del m
            z = torch.zeros(1024, 1024, dtype=torch.bool, device="cuda")
            print(k.sum().item(), z.any().item())
            q = torch.where(k, 2, 3)
            q[5:7] = 1
            q += 1
            print(q.sum().item(), q[4:8, 0].tolist())
        """)
        self.assertEqual(lines, ["97450 False 524800", "523776 False", "3668467 [4, 2, 2, 4]"])

    def test_a_mask_of_floating_ones_is_all_true_until_it_is_written(self):
        """Models make `torch.ones(batch, length)` where no mask is given, and take another path where all of it is true."""
        lines, _ = self.dry("""
            import torch
            whole = lambda x: bool((x > 0).sum() == x.numel())
            mask = torch.ones(8, 384, device="cuda")
            print(whole(mask), whole(mask.to(torch.bool)), mask.sum().item())
            mask[2, 5:] = 0
            print(whole(mask))
            other = torch.ones(8, 384, device="cuda")
            other *= torch.rand(8, 384, device="cuda")
            print(whole(other))
            del mask, other
            print(whole(torch.empty(8, 384, device="cuda")))
        """)
        self.assertEqual(lines, ["True True 3072.0", "False", "False", "False"])

    def test_padding_of_encoders_is_known_where_it_becomes_a_mask_of_numbers(self):
        """nn.TransformerEncoder fills -inf into zeros where a mask is true, and asks that mask how long the rows are: nested tensors have that many."""
        lines, _ = self.dry("""
            import torch
            ids = torch.zeros(8, 32, dtype=torch.int64)
            for i in range(8):
                ids[i, :4 * i + 4] = 1
            hidden = ids.cuda() == 0
            mask = torch.zeros_like(hidden, dtype=torch.float32).masked_fill_(hidden, float("-inf"))
            print(mask.logical_not().sum(1).tolist())
            other = torch.empty(8, 32, device="cuda").normal_()
            print(other.masked_fill_(hidden, 0.0).logical_not().sum().item())
            mask.add_(other)
            print(mask.logical_not().sum().item())
            layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, dropout=0.0)
            net = torch.nn.TransformerEncoder(layer, 2).cuda().eval()
            x = torch.randn(8, 32, 64, device="cuda")
            with torch.no_grad():
                print(net(x, src_key_padding_mask=hidden).shape, net(x, src_key_padding_mask=torch.rand(8, 32, device="cuda") > 0.5).shape)
        """)
        self.assertEqual(lines, [str([4 * i + 4 for i in range(8)]), "0", "0", "torch.Size([8, 32, 64]) torch.Size([8, 32, 64])"])

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
        self.assertEqual(routed(marks), [("program.py:5", 0)])
        boxes = "import torch\nx = torch.randn(64, device='cuda')\nbest = x.topk(16)[0]\nprint((best > 0.1).nonzero().shape[0])\n"
        lines, marks_of_boxes = self.dry(boxes)
        self.assertEqual((lines, routed(marks_of_boxes)), (["8"], [("program.py:4", 1)]), "how much of a mask is true")
        told = {m[1].rsplit("/", 1)[1] for m in marks if m[0] == "value"}
        self.assertEqual(told, {"program.py:5 int64", "program.py:6 bool", "program.py:6 int64"})
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0][0], str([64, 64] + [0] * 14))
        shares = "measured:" + ",".join(["9"] + ["1"] * 15)
        counts = eval(self.dry(program, HEADROOM_DRY_ROUTING=shares)[0][0])
        self.assertEqual((sum(counts), counts[0] == max(counts)), (128, True))

    def test_sizes_by_values_are_run_with_nothing_and_with_all(self):
        program = """
            import torch
            x = torch.randn(64, device="cuda")
            print(x[x > 0].shape[0], torch.unique((x * 9).int()).shape[0], (torch.randn(3000, 2000, device="cuda") > 0).nonzero().shape[0])
        """
        routed = lambda marks: [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"]
        lines, marks = self.dry(program)
        self.assertEqual((lines, routed(marks)), (["32 64 3000000"], [("program.py:4", 1)]))
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="balanced")[0], ["0 1 0"])
        self.assertEqual(self.dry(program, HEADROOM_DRY_ROUTING="worst")[0], ["64 64 6000000"])
        known = "import torch\nx = torch.arange(64, device='cuda')\nprint(x[x > 9].shape[0], torch.unique(x // 2).shape[0])\n"
        lines, marks = self.dry(known)
        self.assertEqual((lines, routed(marks)), (["54 32"], []), "what is known is no guess")

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_what_a_kernel_of_another_library_writes_is_not_known(self):
        """It fills a mask of zeros with the boxes that are kept."""
        lines, marks = self.dry("""
            import torch, torchvision
            x = torch.rand(100, 4, device="cuda")
            print(torchvision.ops.nms(x, torch.rand(100, device="cuda"), 0.5).shape[0])
        """)
        self.assertEqual((lines, [m[2] for m in marks if m[0] == "routed"]), (["50"], [1]))

    def test_a_tensor_as_large_as_a_value_says_may_need_more(self):
        opened = lambda program: [m[1].split("/")[0].split(" ")[0] for m in self.dry("import torch\n" + program)[1] if m[0] == "open"]
        self.assertEqual(opened("n = (torch.randn(9, device='cuda') * 5).int()\ntorch.repeat_interleave(torch.ones(9, device='cuda'), n)\n"), ["repeat_interleave"])
        self.assertEqual(opened("n = (torch.randn(9, device='cuda') * 5).int()\ntorch.repeat_interleave(torch.ones(9, device='cuda'), n, output_size=20)\n"), [])
        self.assertEqual(opened("torch.repeat_interleave(torch.ones(9, device='cuda'), torch.arange(9, device='cuda'))\n"), [])

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

    def test_a_scaler_sees_finite_gradients(self):
        lines, marks = self.dry("""
            import torch
            p = torch.nn.Parameter(torch.randn(8, 8, device="cuda"))
            s, o = torch.amp.GradScaler("cuda", growth_interval=2), torch.optim.AdamW([p])
            for _ in range(4):
                with torch.autocast("cuda", torch.float16):
                    loss = (p @ p).sum()
                s.scale(loss).backward()
                s.unscale_(o)
                s.step(o)
                s.update()
                print(s.get_scale(), int(o.state[p]["step"]))
        """, HEADROOM_DRY_STEPS="9")
        self.assertEqual(lines, ["65536.0 1", "131072.0 2", "131072.0 3", "262144.0 4"])
        self.assertEqual([m for m in marks if m[0] == "value"], [])

    def test_what_an_operation_overwrites_is_no_longer_known(self):
        text = """
            import torch
            def draw(): return torch.randn(1, 8, device="cuda")
            def after(change, n=1):
                x = torch.full((n,), 3.0).cuda()
                change(x)
                print(x.cpu()[-1].item())
            after(lambda x: x.resize_(200), 300)
            after(lambda x: x.normal_(), 300)
            after(lambda x: x.exponential_())
            after(lambda x: x.erfinv_())
            after(lambda x: x.addcmul_(draw()[0, :1], draw()[0, :1]))
            after(lambda x: torch.mm(draw(), draw().T, out=x.view(1, 1)))
            after(lambda x: torch.nn.functional.silu(x, inplace=True))
            after(lambda x: x.xlogy_(2.0))
            """
        self.assertEqual(self.dry(text)[0], ["3.0"] + 7 * ["0.75"])

    def test_steps_of_an_optimizer_that_was_loaded_onto_the_card_are_known(self):
        lines, _ = self.dry("""
            import io, torch
            model = torch.nn.Linear(8, 8).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            def step():
                model(torch.randn(4, 8, device="cuda")).sum().backward()
                optimizer.step()
            step()
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer.load_state_dict(torch.load(file, map_location="cuda"))
            step()
            counters = [optimizer.state[p]["step"] for p in model.parameters()]
            print([(c.is_cuda, c.item()) for c in counters])
            """, HEADROOM_DRY_STEPS="50")
        self.assertEqual(lines, ["[(True, 2.0), (True, 2.0)]"])

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
                                 "True True False True False", "True False False 2048 0"])
        self.assertIn(("value", "program.py:6 float32"), [(m[0], m[1].rsplit("/", 1)[1]) for m in marks if m[0] == "value"])

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
            "while counter.item() < 5:\n    counter += (x > 0.5).sum()\n": ("program.py:4", 1500),
            "def done():\n    return counter.item() > 5\nwhile not done():\n    pass\n": ("program.py:6", 1500),  # the loop's line
            "import time\nwhile not counter.item():\n    time.sleep(0.02)\n": ("program.py:5", 200),  # long
            "import time\nn = 0\nwhile n < 9999:\n    time.sleep(0.02)\n    if counter.item(): break\n": ("program.py:8", 200),  # nothing was launched
        }
        for loop, (line, times) in ends.items():
            _, marks = self.dry("import torch\ncounter = torch.empty(1, dtype=torch.int64, device='cuda')\nx = torch.rand(9, device='cuda')\n" + loop, code=1,
                                HEADROOM_DRY_LOOP_S="3")
            end = [m[1] for m in marks if m[0] == "end"]
            self.assertEqual(len(end), 1, (loop, marks[-3:]))
            self.assertIn(line + " waits for a value", end[0])
            self.assertRegex(end[0], f"read {times} times")
            self.assertIn((line, 64), [(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "loop"])

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


class Memory(Dry):
    def both(self, program):
        with_it, without = (self.dry(NET + program, HEADROOM_DRY_OBSERVE=o, HEADROOM_DRY_STEPS="99")[0] for o in "10")
        self.assertEqual(with_it, without)
        self.assertGreater(int(with_it[0].split()[0]), 10 << 20)

    def test_peaks_are_the_same_with_and_without_the_observer(self):
        for kind in "AdamW(net.parameters())", "AdamW(net.parameters(), fused=True)", "SGD(net.parameters(), lr=0.1, momentum=0.9)":
            self.both(f"o = torch.optim.{kind}\nfor _ in range(3):\n    step(o, autocast='fused' in {kind!r})\n"
                      "print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())\n")

    def test_so_with_checkpointing_and_accumulation(self):
        self.both("from torch.utils.checkpoint import checkpoint\n"
                  "for b in net.blocks:\n    b.forward = (lambda f: lambda x: checkpoint(f, x, use_reentrant=False))(b.forward)\n"
                  "o = torch.optim.AdamW(net.parameters())\nfor _ in range(3):\n    net(ids).sum().backward()\n    step(o)\n"
                  "print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())\n")


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

    def opened(self, program):
        return [(m[1].split(" ")[0], m[2]) for m in self.dry(NET + program, HEADROOM_DRY_STEPS="99")[1] if m[0] == "open"]

    def test_searches_that_values_end_are_told(self):
        run = "o = torch.optim.{}\ndef closure():\n    o.zero_grad()\n    l = net(ids).sum()\n    l.backward()\n    return l\nfor _ in range(2):\n    o.step(closure)\n"
        self.assertEqual(self.opened(run.format("LBFGS(net.parameters())")), [("LBFGS", 1)])
        self.assertEqual(self.opened(run.format("SGD(net.parameters(), lr=0.1)")), [])

    def test_threads_that_train_at_once_are_told(self):
        train = ("import threading\nturn = threading.Barrier(2)\ndef train(at_once):\n    p = nn.Parameter(torch.ones(8, device='cuda'))\n    o = torch.optim.SGD([p], lr=0.1)\n"
                 "    for _ in range(2):\n        p.sum().backward()\n        o.step()\n        if at_once: turn.wait()\n")
        two = "threads = [threading.Thread(target=train, args=(True,)) for _ in range(2)]\nfor t in threads: t.start()\nfor t in threads: t.join()\n"
        self.assertEqual(self.opened(train + two), [("several", 2)])
        after = "train(False)\nfor _ in range(2):\n    t = threading.Thread(target=train, args=(False,))\n    t.start()\n    t.join()\n"
        self.assertEqual(self.opened(train + after), [])

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


class Record(Dry):
    def recorded(self, program, **environment):
        """The bytes of the record of a program."""
        with tempfile.TemporaryDirectory() as folder:
            self.dry(NET + program, HEADROOM_DRY_FOLDER=folder, **environment)
            (name,) = [n for n in os.listdir(folder) if n.endswith(".dry")]
            with open(os.path.join(folder, name), "rb") as f:
                return f.read()

    def assert_forward_alone(self, program):
        record = self.recorded(program)
        self.assertEqual((b"forward" in record, b"evaluation" in record), (True, False))

    def test_a_part_without_gradients_is_forward_and_a_whole_model_evaluation(self):
        part = ("class Part(nn.Module):\n    @torch.no_grad()\n    def forward(self, x):\n        return x * 2\n"
                "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part, self.net = Part(), net\n"
                "    def forward(self, ids):\n        x = self.net(ids)\n        return x + self.part(x)\n"
                "whole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)
        self.assertIn(b"evaluation", self.recorded(part + "with torch.no_grad():\n    whole(ids)\n"))

    def test_a_function_of_its_own_gradient_is_forward(self):
        if not hasattr(torch.autograd.Function.apply, "__func__"):
            self.skipTest("this torch calls a function without a frame of its own: bench/lab/next")
        part = ("class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
                "    @staticmethod\n    def backward(ctx, dy):\n        return dy * 2\n"
                "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = net\n"
                "    def forward(self, ids):\n        return Twice.apply(self.net(ids))\nwhole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)

    def test_what_is_saved_by_hooks_is_forward(self):
        part = ("class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net, self.w = net, nn.Parameter(torch.ones(1000, 64, device='cuda'))\n"
                "    def forward(self, ids):\n        x = self.net(ids)\n        with torch.autograd.graph.save_on_cpu(pin_memory=True):\n"
                "            return x.transpose(0, 1) @ self.w\nwhole = Whole()\nwhole(ids).sum().backward()\n")
        self.assert_forward_alone(part)

    def test_a_module_that_is_being_made_takes_no_names_from_the_others(self):
        half = "class Half(nn.Module):\n    def __init__(self):\n        self.__dict__['word'] = 1\nhalf = Half()\n"
        _, marks = self.dry(NET + half + "o = torch.optim.SGD(net.parameters(), lr=0.1)\nstep(o)\n")
        self.assertIn("blocks.0.up", [m[1] for m in marks if m[0] == "scope"])
        self.assertEqual([m[1] for m in marks if m[0] == "note"], [])

    def test_it_has_what_the_allocator_was_asked(self):
        self.assertGreater(self.blocks_asked("o = torch.optim.AdamW(net.parameters())\nfor _ in range(3):\n    step(o)\n"), 300)

    def test_it_has_that_of_a_program_that_records_a_history_of_its_own(self):
        record, step = "torch.cuda.memory._record_memory_history({})\n", "for _ in range(2):\n    step(o)\n"
        plain = self.blocks_asked("o = torch.optim.AdamW(net.parameters())\n" + 3 * step)
        own = ("o = torch.optim.AdamW(net.parameters())\n" + step + record.format("max_entries=50") + step
               + "assert len(torch.cuda.memory._snapshot()['device_traces'][0]) > 50\n" + record.format("enabled=None") + step)
        self.assertEqual(self.blocks_asked(own), plain)

    def test_a_pool_of_its_own_is_a_stream_to_the_reader(self):
        if not hasattr(torch.cuda, "MemPool"):
            self.skipTest("this torch has no MemPool")
        pool = "pool = torch.cuda.MemPool()\nfor _ in range(2):\n    with torch.cuda.use_mem_pool(pool):\n        x = torch.ones(3 << 20, device='cuda')\n    del x\n"
        in_pool = [r for r in self.asked(pool + "y = torch.ones(3 << 20, device='cuda')\n") if r[2] == 0 and r[1] == 12 << 20]
        self.assertEqual([r[3] == in_pool[-1][3] for r in in_pool], [False, False, True])
        before = "x = torch.ones(3 << 20, device='cuda')\ndel x\ntorch.cuda.empty_cache()\n"  # its addresses are the pool's afterwards
        places = [r for r in self.asked(before + pool) if r[2] == 0 and r[1] == 12 << 20]
        self.assertEqual(len({r[0] for r in places}), 1)
        self.assertEqual([r[3] == places[0][3] for r in places], [True, False, False])

    def blocks_asked(self, program):
        """How many blocks the record says were taken: each where none is, from the first on."""
        requests = self.asked(program)
        taken, live = 0, set()
        self.assertEqual(requests[0][2], 3, "the first segment")
        for address, size, what, stream in requests:
            if what == 0:
                taken += 1
                self.assertNotIn(address, live)
                live.add(address)
            elif what == 2:
                live.remove(address)
        return taken

    def asked(self, program):
        """(address, bytes, what, stream) of each request in the record."""
        record = self.recorded(program, HEADROOM_DRY_STEPS="99")
        requests, at = [], struct.unpack_from("I", record, 12)[0]
        while at + 16 <= len(record):
            kind, words = struct.unpack_from("HH", record, at)
            if kind == 0:
                break
            if kind == 18:
                device, count, whole = struct.unpack_from("III", record, at + 16)
                self.assertEqual((device, whole), (0, 1))
                requests += [struct.unpack_from("QQII", record, at + 32 + 24 * i) for i in range(count)]
            at += 8 * words
        return requests


class Substitutes(Dry):
    def tried(self, word, made="torch.optim.AdamW(net.parameters())", autocast=True):
        lines, marks = self.dry(NET + f"o = {made}\nfor _ in range(3):\n    step(o, {autocast})\n"
                                "print(torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())\n", HEADROOM_DRY_TRY=word, HEADROOM_DRY_STEPS="9")
        return [int(n) for n in lines[-1].split()], [m for m in marks if m[0] in ("replaced", "cannot")]

    def test_each_saves_what_it_should_and_says_what_it_replaced(self):
        (peak, held), marks = self.tried("")
        self.assertEqual(marks, [])
        for word, count, peak_falls, held_falls in (("adamw-8bit", 1, True, True), ("checkpoint", 4, True, False), ("bf16", None, True, True)):
            with self.subTest(word):
                (less, kept), marks = self.tried(word)
                self.assertEqual([m[0] for m in marks], ["replaced"])
                self.assertTrue(marks[0][1].startswith(word + ": "), marks)
                if count:
                    self.assertEqual(marks[0][2], count)
                self.assertEqual((less < peak, kept < held), (peak_falls, held_falls), (less, peak, kept, held))
        (less, kept), marks = self.tried("adamw-fused")
        self.assertEqual([m[0] for m in marks], ["replaced"])
        self.assertEqual(kept, held + 27 * 512)  # a fused step counts on the card, for each of the 27 parameters
        self.assertLessEqual(less, peak + 27 * 512)

    def test_one_that_finds_nothing_says_so(self):
        _, marks = self.tried("adamw-fused", "torch.optim.SGD(net.parameters(), lr=0.1)")
        self.assertEqual(marks, [("cannot", "adamw-fused: the program made nothing that it replaces", 0)])
        _, marks = self.tried("adamw-fused", "torch.optim.AdamW(net.parameters(), fused=True)")
        self.assertEqual(marks, [("cannot", "adamw-fused: AdamW is fused already", 0)])
        _, marks = self.tried("nothing-like-it")
        self.assertEqual(marks, [("cannot", "nothing-like-it: no substitute has this name", 0)])


if __name__ == "__main__":
    unittest.main()
