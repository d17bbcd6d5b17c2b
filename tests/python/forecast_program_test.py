"""headroom forecast on real PyTorch programs, without a GPU: what the program itself sees of the allocator is what is forecast. Exit code 77: skipped.

HEADROOM_PROGRAM names the program; torch has to be a build for CUDA."""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)
if torch.version.cuda is None:
    print("skipped: this torch is a build for CPUs")
    sys.exit(77)
PROGRAM = os.environ.get("HEADROOM_PROGRAM", "")
if not os.path.exists(PROGRAM):
    print("skipped: HEADROOM_PROGRAM names no program")
    sys.exit(77)

STEP = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 4
model = nn.Sequential(*[Block(512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    x = torch.randn(batch, 1024, 512, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("SEEN", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
"""


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def forecast(self, *words, options=(), code=0):
        command = [PROGRAM, "forecast", "--format", "json", "--db", os.path.join(self.folder.name, "results.db"), *options]
        ended = subprocess.run([*command, "--", sys.executable, *map(str, words)], capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, code, ended.stderr[-3000:])
        return json.loads(ended.stdout), ended.stderr

    def test_the_forecast_is_what_the_program_sees(self):
        for options in ["--device", "h100", "--steps", "50"], ["--device", "rtx4090", "--steps", "50"]:
            answer, said = self.forecast(self.file("step.py", STEP), 8, options=options)
            seen = next(line.split() for line in said.splitlines() if "SEEN" in line)
            self.assertEqual(answer["peak_allocated_bytes"], int(seen[1]))
            self.assertEqual(answer["peak_reserved_bytes"], int(seen[2]))
            self.assertTrue(answer["fits"])
            self.assertEqual(answer["needed_bytes"], answer["peak_reserved_bytes"] + answer["beside_bytes"])

    def test_readme_shows_what_the_program_prints(self):
        source = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
        with open(os.path.join(source, "README.md")) as f:
            page = f.read()
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        torch_then, transformers_then = re.search(r"torch ([0-9.]+), transformers ([0-9.]+)", page).groups()
        here = torch.__version__.split("+")[0], transformers.__version__
        if here != (torch_then, transformers_then):
            self.skipTest(f"README's forecast is of torch {torch_then} and transformers {transformers_then}; here are {here[0]} and {here[1]}")
        command, _, block = page[page.index("$ headroom forecast ") :].partition("\n")
        words = command.split()[2:]
        words[words.index("python3")] = sys.executable
        ended = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=900,
                               cwd=os.path.join(source, "examples", "python"), env=os.environ | {"COLUMNS": "100"})
        printed = iter(line.replace(sys.executable, "python3") for line in ended.stdout.splitlines())
        for line in block[: block.index("```")].splitlines():
            if line and line != "…" and not line.startswith("  program "):
                self.assertIn(line, printed, "README is stale, or says what is not printed")

    def test_every_byte_of_the_peak_is_named(self):
        answer, _ = self.forecast(self.file("step.py", STEP), 8, options=["--device", "h100"])
        self.assertEqual(sum(row["bytes"] for row in answer["at_peak"]), answer["peak_allocated_bytes"])
        phases = {row["phase"] for row in answer["phases"]}
        self.assertLessEqual({"forward", "backward", "optimizer"}, phases)
        state = sum(row["bytes"] for row in answer["at_peak"] if row["what"] == "optimizer state")
        weights = 4 * 4 * (2 * 4 * 512 * 512 + 5 * 512)  # four blocks, FP32
        self.assertAlmostEqual(state, 2 * weights, delta=0.01 * weights)
        saved = sum(row["bytes"] for row in answer["saved"])
        self.assertGreaterEqual(saved, 4 * 8 * 1024 * 512 * 4 * 9)  # each block: x, up's result, gelu's
        self.assertTrue(any(row["line"].endswith("step.py:12") for row in answer["saved"]), answer["saved"])

    def test_a_program_ends_by_itself_once_its_peaks_agree(self):
        endless = STEP.replace("range(3)", "range(10**9)")
        answer, _ = self.forecast(self.file("endless.py", endless), options=["--device", "h100"])
        self.assertTrue(answer["fits"])
        self.assertGreaterEqual(answer["steps"], 2)
        answer, _ = self.forecast(self.file("endless.py", endless), options=["--device", "h100", "--steps", "4"])
        self.assertEqual(answer["steps"], 4)

    def test_what_does_not_fit_says_where_and_what_it_would_need(self):
        path = self.file("step.py", STEP)
        whole, _ = self.forecast(path, 64, options=["--device", "h100"])
        small, said = self.forecast(path, 64, options=["--device", "h100", "--memory", "2"], code=3)
        self.assertEqual(small["status"], "oom")
        self.assertEqual(small["peak_allocated_bytes"], whole["peak_allocated_bytes"])
        self.assertIn("OutOfMemoryError", said)
        self.assertRegex(small["line"], r"step\.py:\d+")

    def test_a_program_that_halves_its_batch_works_as_on_a_card(self):
        text = """
            import torch
            n = 1 << 16
            while True:
                try:
                    x = torch.empty(n, 1 << 20, device="cuda", dtype=torch.uint8)
                    break
                except torch.cuda.OutOfMemoryError:
                    n //= 2
            print("SEEN", n)
            """
        answer, said = self.forecast(self.file("halves.py", text), options=["--device", "h100", "--memory", "24"])
        self.assertIn("SEEN 16384", said)
        self.assertEqual(answer["peak_allocated_bytes"], 1 << 34)
        self.assertTrue(answer["fits"])

    def test_a_program_that_fails_of_itself_keeps_its_traceback(self):
        text = "import torch\nx = torch.ones(1 << 20, device='cuda')\nraise SystemExit(5)\n"
        answer, _ = self.forecast(self.file("fails.py", text), options=["--device", "h100"], code=1)
        self.assertEqual(answer["status"], "failed")
        self.assertIn("exit code 5", answer["why"])
        self.assertEqual(answer["peak_allocated_bytes"], 1 << 22)

    def test_an_allocator_setting_and_a_limit_of_the_program_hold(self):
        text = """
            import torch
            torch.cuda.set_per_process_memory_fraction(0.5)
            try:
                torch.empty(60 << 30, device="cuda", dtype=torch.uint8)
            except torch.cuda.OutOfMemoryError:
                print("SEEN limit")
            x = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
            """
        answer, said = self.forecast(self.file("limit.py", text), options=["--device", "h100"])
        self.assertIn("SEEN limit", said)
        self.assertEqual(answer["peak_allocated_bytes"], 1 << 30)

    def test_a_limit_of_the_program_is_named_and_what_it_needs_is_found(self):
        rest = "\nblocks = [torch.empty(512 << 20, device='cuda', dtype=torch.uint8) for _ in range(10)]\n"
        by_call = "import torch\ntorch.cuda.set_per_process_memory_fraction(0.1)" + rest
        by_setting = 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "per_process_memory_fraction:0.1,max_split_size_mb:64"\nimport torch' + rest
        programs = [(by_call, "limit.py:2 lets")]
        if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 11):
            programs.append((by_setting, "PYTORCH_CUDA_ALLOC_CONF lets"))
        for text, said in programs:
            answer, _ = self.forecast(self.file("limit.py", text), options=["--device", "rtx4090"], code=3)
            self.assertEqual(answer["status"], "oom")
            self.assertEqual(answer["peak_reserved_bytes"], 10 * (512 << 20))
            self.assertEqual(answer["allowed_bytes"], int(0.1 * answer["memory_bytes"]))
            self.assertIn(said, answer["why"])

    def test_transformers_with_trainer(self):
        try:
            import accelerate  # noqa: F401
            import transformers  # noqa: F401
        except ImportError:
            self.skipTest("transformers or accelerate is not installed")
        text = """
            import tempfile, torch
            from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
            model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                                                 num_attention_heads=4, num_key_value_heads=4))
            data = [{"input_ids": torch.arange(128), "labels": torch.arange(128)} for _ in range(64)]
            args = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=3, report_to=[], save_strategy="no",
                                     logging_steps=1, disable_tqdm=True)
            Trainer(model, args, train_dataset=data).train()
            print("SEEN", torch.cuda.max_memory_allocated(), flush=True)
            """
        answer, said = self.forecast(self.file("trainer.py", text), options=["--device", "h100", "--steps", "50"])
        seen = next(line.split() for line in said.splitlines() if "SEEN" in line)
        self.assertEqual(answer["peak_allocated_bytes"], int(seen[1]))
        self.assertTrue(any("llama" in row["line"] for row in answer["at_peak"]), answer["at_peak"][:5])

    def test_what_a_graph_keeps_is_in_the_peak(self):
        text = """
            import sys, torch
            model = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
            x = torch.randn(4096, 1024, device="cuda")
            warm = torch.cuda.Stream()
            warm.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(warm):
                for _ in range(3):
                    optimizer.zero_grad()
                    model(x).square().sum().backward()
                    optimizer.step()
            torch.cuda.current_stream().wait_stream(warm)
            graph = torch.cuda.CUDAGraph()
            optimizer.zero_grad()
            with torch.cuda.graph(graph):
                model(x).square().sum().backward()
                optimizer.step()
            print("SEEN", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
            while True:
                graph.replay()
            """
        answer, said = self.forecast(self.file("graph.py", text), options=["--device", "h100"])
        seen = next(line.split() for line in said.splitlines() if "SEEN" in line)
        self.assertEqual(answer["peak_allocated_bytes"], int(seen[1]))
        self.assertEqual(answer["peak_reserved_bytes"], int(seen[2]))

    def test_steps_whose_forward_and_backward_are_a_graph_are_counted(self):
        text = """
            import torch
            model = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.SGD(model.parameters())
            x = torch.randn(4096, 1024, device="cuda")
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                model(x).square().sum().backward()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(x).square().sum().backward()
            for _ in range(6):
                graph.replay()
                optimizer.step()
            """
        answer, _ = self.forecast(self.file("graph_beside.py", text), options=["--device", "h100", "--steps", "50"])
        self.assertEqual(len(answer["steps_done"]), 6)

    def test_what_a_closure_does_is_not_the_optimizers(self):
        text = STEP.replace("""    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
""", """    def closure():
        loss = model(x).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
""")
        self.assertIn("closure", text)
        answer, _ = self.forecast(self.file("closure.py", text), options=["--device", "h100"])
        plain, _ = self.forecast(self.file("step.py", STEP), options=["--device", "h100"])
        for name in "peak_allocated_bytes", "steps":
            self.assertEqual(answer[name], plain[name], name)
        self.assertAlmostEqual(answer["saved_bytes"], plain["saved_bytes"], delta=1024)  # the loss, which the closure hands on
        peaks = [{row["phase"]: row["peak_allocated_bytes"] for row in of["phases"]} for of in (answer, plain)]
        for phase in "forward", "backward":
            self.assertAlmostEqual(peaks[0][phase], peaks[1][phase], delta=1024, msg=phase)

    def test_a_step_of_two_graphs_is_one_step(self):
        text = """
            import torch
            model = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.Adam(model.parameters(), capturable=True)
            x = torch.randn(64, 1024, device="cuda")
            warm = torch.cuda.Stream()
            with torch.cuda.stream(warm):
                model(x).sum().backward()
                optimizer.step()
            torch.cuda.current_stream().wait_stream(warm)
            passes, update = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(passes):
                model(x).sum().backward()
            with torch.cuda.graph(update, pool=passes.pool()):
                optimizer.step()
            for _ in range(5):
                passes.replay()
                update.replay()
            """
        answer, _ = self.forecast(self.file("two_graphs.py", text), options=["--device", "h100", "--steps", "50"])
        self.assertEqual(answer["steps"], 6)

    def test_recurrent_layers_run_and_their_scratch_is_named(self):
        text = """
            import torch
            layers = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True).cuda()
            optimizer = torch.optim.SGD(layers.parameters())
            for _ in range(3):
                layers(torch.randn(16, 32, 64, device="cuda"))[0].sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            print("SEEN", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
            """
        answer, said = self.forecast(self.file("recurrent.py", text), options=["--device", "h100", "--steps", "50"])
        seen = next(line.split() for line in said.splitlines() if "SEEN" in line)
        self.assertEqual(answer["peak_allocated_bytes"], int(seen[1]))
        self.assertEqual(answer["peak_reserved_bytes"], int(seen[2]))
        self.assertIn(("cuDNN LSTM", "workspace as of an H100"), [(row["function"], row["what"]) for row in answer["uncertain"]["functions"]])
        self.assertGreater(answer["uncertain"]["high_bytes"], answer["needed_bytes"])

    def test_a_program_that_takes_long_to_end_has_its_interval(self):
        text = "import atexit, time\natexit.register(time.sleep, 60)\n" + STEP.replace("range(3)", "range(10**9)")
        answer, _ = self.forecast(self.file("slow_end.py", text), options=["--device", "h100"])
        self.assertIsNotNone(answer["uncertain"]["high_bytes"])

    def test_max_autotune_compiles_two_choices_and_says_so(self):
        text = """
            import torch
            torch.set_default_device("cuda")
            model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).bfloat16()
            optimizer = torch.optim.SGD(model.parameters())
            run = torch.compile(model, mode="max-autotune-no-cudagraphs")
            for _ in range(3):
                run(torch.randn(1024, 512, dtype=torch.bfloat16)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            print("SEEN", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
            """
        with tempfile.TemporaryDirectory() as tmp:
            path = {k: v for k, v in os.environ.items() if k not in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
            with unittest.mock.patch.dict(os.environ, {**path, "TMPDIR": tmp}, clear=True):
                answer, said = self.forecast(self.file("tuned.py", text), options=["--device", "h100", "--steps", "50"])
            caches = [name for name in os.listdir(tmp) if "torchinductor" in name]
        self.assertEqual([name.rsplit("-", 1)[0] for name in caches], ["headroom-dry-torchinductor"])
        seen = next(line.split() for line in said.splitlines() if "SEEN" in line)
        self.assertEqual(answer["peak_allocated_bytes"], int(seen[1]))
        self.assertEqual(answer["peak_reserved_bytes"], int(seen[2]))
        self.assertIn("PyTorch's own were kept", " ".join(row["text"] for row in answer["uncertain"]["said"]))
        self.assertNotIn("for 21 choices", said)
        self.assertIsNone(answer["uncertain"]["high_bytes"])  # a card measures all of them, and keeps more reserved

    def test_each_of_two_ranks_is_told(self):
        text = """
            import os, torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            dist.init_process_group("nccl")
            rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(rank)
            model = DistributedDataParallel(torch.nn.Linear(1024, 1024 * (1 + rank * 0), device="cuda"), device_ids=[rank])
            optimizer = torch.optim.SGD(model.parameters())
            for _ in range(3):
                model(torch.ones(64 * (rank + 1), 1024, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            dist.destroy_process_group()
            """
        path = self.file("ranks.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        answer = json.loads(ended.stdout)
        self.assertEqual(sorted(row["rank"] for row in answer["ranks"]), [0, 1])
        self.assertTrue(answer["fits"])

    def test_objects_of_ranks_are_gathered_and_scattered(self):
        text = """
            import os, torch
            import torch.distributed as dist
            import torch.distributed.checkpoint as checkpoint
            from torch.distributed.fsdp import fully_shard
            rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(rank)
            dist.init_process_group("nccl")
            gathered, mine = [None] * 2, [None]
            dist.gather_object("r" * (rank + 1), gathered if rank == 0 else None)
            dist.scatter_object_list(mine, ["a", "longer"] if rank == 0 else None)
            os.write(1, f"SEEN {rank} {gathered} {mine}\\n".encode())
            model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).cuda()
            fully_shard(model)
            model(torch.randn(8, 64, device="cuda")).sum().backward()
            checkpoint.save({"model": model.state_dict()}, checkpoint_id=os.path.join(os.environ["FOLDER"], "saved"))
            dist.destroy_process_group()
            """
        path = self.file("objects.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "FOLDER": self.folder.name})
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertIn("SEEN 0 ['r', 'rr'] ['a']", ended.stderr)
        self.assertIn("SEEN 1 [None, None] ['longer']", ended.stderr)

    def test_one_host_of_two_is_run_and_told_the_whole_world(self):
        text = """
            import os, torch
            import torch.distributed as dist
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
            said = [None] * dist.get_world_size()
            dist.all_gather_object(said, os.environ["LOCAL_RANK"])
            os.write(1, f"SEEN {dist.get_world_size()} {' '.join(said)}\\n".encode())
            x = torch.empty((1 << 30) // dist.get_world_size(), dtype=torch.uint8, device="cuda")
            dist.destroy_process_group()
            """
        path = self.file("hosts.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2",
                    "--master-addr", "no.such.host", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertEqual(ended.stderr.count("SEEN 4 0 1 0 1"), 2, ended.stderr[-3000:])
        answer = json.loads(ended.stdout)
        self.assertEqual(len(answer["ranks"]), 2)
        self.assertGreaterEqual(answer["peak_allocated_bytes"], 1 << 28)
        self.assertLess(answer["peak_allocated_bytes"], 1 << 29)
        self.assertIn("one host", " ".join(row["text"] for row in answer["uncertain"]["said"]))
        alone = {"WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
        ended = subprocess.run([*command[:command.index("--") + 1], sys.executable, path], env={**os.environ, **alone},
                               capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertIn("SEEN 4 0 0 0 0", ended.stderr)

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

    def test_addresses_that_decide_nothing_are_not_noted(self):
        text = STEP.replace("range(3)", "range(10**9)")
        words = [PROGRAM, "forecast", "--device", "h200", "--db", os.path.join(self.folder.name, "results.db"), "--", sys.executable]
        ended = subprocess.run([*words, self.file("endless.py", text)], capture_output=True, text=True, timeout=600)
        answer, _ = self.forecast(self.file("endless.py", text), options=["--device", "h200"])
        uncertain = answer["uncertain"]
        width = uncertain["allocated_high_bytes"] > uncertain["allocated_low_bytes"] or uncertain["high_bytes"] > uncertain["low_bytes"]
        self.assertEqual("by addresses that only the card knows" in ended.stdout, width, ended.stdout)

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

    def test_the_time_is_the_same_in_every_run(self):
        # Means and operands that are stretched: their kernels carry tables whose unused part is what was on the stack before.
        norm = "x = x * x.square().mean(-1, keepdim=True).rsqrt()\n        return x + "
        file = self.file("again.py", STEP.replace("return x + ", norm))
        times = {self.forecast(file, 8, options=["--device", "rtx4090", "--steps", "3"])[0]["ms"] for _ in range(3)}
        self.assertEqual(len(times), 1, times)


if __name__ == "__main__":
    unittest.main()
