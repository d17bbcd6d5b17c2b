"""headroom forecast on real PyTorch programs, without a GPU: what the program itself sees of the allocator is what is forecast. Exit code 77: skipped."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from program_forecasts import PROGRAM, STEP, ProgramForecasts

import torch


class Program(ProgramForecasts):
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

    def test_an_evaluation_under_autocast_is_one_and_a_workspace_no_gradient(self):
        """Autocast records gradients of its copies of weights, in an evaluation too. cuBLAS's workspace of autograd's thread is made in a backward pass."""
        program = self.file("evaluates.py", """
            import os
            os.environ["TORCH_CUBLAS_WORKSPACE_CACHE"] = "1"  # without it PyTorch 2.15 makes one for each product, and gives it back
            import torch
            from torch import nn
            net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                with torch.autocast("cuda", torch.bfloat16):
                    net(torch.randn(64, 256, device="cuda")).float().square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                    net(torch.randn(4096, 256, device="cuda"))
            """)
        answer, _ = self.forecast(program, options=["--steps", "9"])
        phases = {p["phase"]: p["count"] for p in answer["phases"]}
        self.assertEqual((phases["forward"], phases["evaluation"]), (3, 3))
        at_peak = {}
        for row in answer["at_peak"]:
            at_peak[row["what"]] = at_peak.get(row["what"], 0) + row["bytes"]
        self.assertGreaterEqual(at_peak["workspaces of cuBLAS"], 2 << 20)
        self.assertLessEqual(at_peak.get("gradients", 0), 4 << 20)

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

    def test_blocks_that_a_setting_does_not_split_have_their_interval(self):
        head = "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:32'\n"
        answer, _ = self.forecast(self.file("split.py", head + STEP), 8, options=["--device", "h100", "--steps", "50"])
        self.assertIsNotNone(answer["uncertain"]["high_bytes"])
        self.assertNotIn("at least", answer["answer"])

    def test_sizes_that_a_list_of_settings_rounds_have_their_interval(self):
        text = """
            import os
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:[4:1,>:4]"
            import torch
            x, y = (torch.empty(n, device="cuda", dtype=torch.uint8) for n in ((7 << 20) + 1, (17 << 20) - 100))
            """
        answer, _ = self.forecast(self.file("rounds.py", text), options=["--device", "h100"])
        self.assertEqual(answer["peak_allocated_bytes"], (7 << 20) + 512 + (20 << 20))
        self.assertIsNotNone(answer["uncertain"]["high_bytes"])
        self.assertNotIn("at least", answer["answer"])

    def test_segments_that_a_setting_gives_back_have_their_interval(self):
        text = """
            import os
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.5"
            import torch
            torch.cuda.set_per_process_memory_fraction(0.01)
            for i in range(9):
                x = torch.empty((60 + 20 * i) << 20, device="cuda", dtype=torch.uint8)
                del x
            print("SEEN", torch.cuda.memory_reserved() < sum(60 + 20 * i for i in range(9)) << 20, flush=True)
            """
        answer, said = self.forecast(self.file("collect.py", text), options=["--device", "h100"])
        self.assertIn("SEEN True", said)
        self.assertIsNotNone(answer["uncertain"]["high_bytes"])
        self.assertNotIn("at least", answer["answer"])

    def test_graphs_that_share_a_pool_have_their_interval(self):
        text = """
            import torch
            net = torch.nn.Linear(2048, 2048, device="cuda")
            x, graphs, pool = torch.zeros(2048, 2048, device="cuda"), [], None
            with torch.no_grad():
                for _ in range(3):
                    net(net(x))
                    graphs.append(torch.cuda.CUDAGraph())
                    with torch.cuda.graph(graphs[-1], pool=pool):
                        y = net(net(net(x)))
                    pool = graphs[-1].pool()
                graphs[0].replay()
            """
        answer, _ = self.forecast(self.file("pool.py", text), options=["--device", "h100"])
        self.assertIsNotNone(answer["uncertain"]["high_bytes"])
        self.assertNotIn("at least", answer["answer"])

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

    def test_steps_of_optimizers_that_are_made_anew_are_counted(self):
        program = self.file("folds.py", """
            import torch
            from torch import nn
            kept = []
            def train(keep, steps, optimizer=None):
                net = nn.Linear(256, 256).cuda()
                optimizer = torch.optim.Adam(net.parameters())
                for _ in range(steps):
                    net(torch.randn(64, 256, device="cuda")).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                if keep:
                    kept.append(optimizer)
            train(False, 3)
            train(True, 4)
            train(True, 15)
            """)
        answer, _ = self.forecast(program, options=["--steps", "1000"])
        self.assertEqual(answer["steps"], 3 + 4 + 6)  # the third one's from its tenth on: the second might step again

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
        self.assertIn(("cuDNN LSTM", "workspace as a card said"), [(row["function"], row["what"]) for row in answer["uncertain"]["functions"]])
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

    def test_an_optimizers_compiled_step_is_counted(self):
        """The observer's hooks are no part of what is compiled."""
        answer, _ = self.forecast(self.file("update.py", """
            import os, torch
            model = torch.nn.Linear(64, 64, device="cuda")
            optimizer = torch.optim.AdamW(model.parameters(), torch.tensor(1e-3))
            @torch.compile
            def update():
                optimizer.step()
            for _ in range(3):
                model(torch.randn(8, 64, device="cuda")).square().mean().backward()
                update()
                optimizer.zero_grad()
            os._exit(0)  # inductor's process of workers sometimes does not end
            """), options=["--device", "h100", "--steps", "50"])
        self.assertEqual(answer["steps"], 3)

    def test_convolutions_that_are_chosen_by_their_times_are_tried_in_the_largest_workspace(self):
        text = """
            import sys, torch
            torch.backends.cudnn.benchmark = "tuned" in sys.argv
            layers = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Conv2d(64, 64, 3)).cuda()
            optimizer = torch.optim.SGD(layers.parameters())
            for _ in range(3):
                layers(torch.randn(8, 3, 64, 64, device="cuda")).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            """
        file = self.file("convolutions.py", text)
        asked = torch.backends.cudnn.version() // 100 == 919  # cards were asked of this cuDNN
        transforms = 2 * 64 * (8 + 64) * 64 * 33 * 8 + 64 * 64 * 9 * 4  # by Fourier: 62 x 62 images in squares of 64
        for word in "plain", "tuned":
            answer, _ = self.forecast(file, word, options=["--device", "h100"])
            said = " ".join(row["text"] for row in answer["uncertain"]["said"])
            self.assertEqual("torch.backends.cudnn.benchmark" in said, word == "tuned", said)
            self.assertEqual(answer["uncertain"]["high_bytes"] is None, word == "tuned" and not asked)
            if asked:
                self.assertEqual(answer["peak_allocated_bytes"] > transforms, word == "tuned")
                self.assertLess(answer["peak_allocated_bytes"], transforms + (64 << 20))

    def test_a_card_that_is_not_shown_is_named_with_the_option_that_shows_it(self):
        file = self.file("second_card.py", "import torch\ntorch.randn(1000, device='cuda:1')\n")
        ended = subprocess.run([PROGRAM, "forecast", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--", sys.executable, file],
                               capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, "second_card.py' ended before it used a card, with exit code 1: .*invalid device ordinal; --gpus 2 shows two GPUs")
        late = self.file("second_card_late.py", "import torch\ntorch.zeros(1 << 20, device='cuda')\ntorch.randn(1000, device='cuda:1')\n")
        answer, _ = self.forecast(late, options=["--device", "h100"], code=1)
        self.assertIn("--gpus 2 shows two GPUs", answer["why"])
        self.forecast(late, options=["--device", "h100", "--gpus", "2"])

    def test_addresses_that_decide_nothing_are_not_noted(self):
        text = STEP.replace("range(3)", "range(10**9)")
        words = [PROGRAM, "forecast", "--device", "h200", "--db", os.path.join(self.folder.name, "results.db"), "--", sys.executable]
        ended = subprocess.run([*words, self.file("endless.py", text)], capture_output=True, text=True, timeout=600)
        answer, _ = self.forecast(self.file("endless.py", text), options=["--device", "h200"])
        uncertain = answer["uncertain"]
        width = uncertain["allocated_high_bytes"] > uncertain["allocated_low_bytes"] or uncertain["high_bytes"] > uncertain["low_bytes"]
        self.assertEqual("by addresses that only the card knows" in ended.stdout, width, ended.stdout)

    def test_the_time_is_the_same_in_every_run(self):
        # Means and operands that are stretched: their kernels carry tables whose unused part is what was on the stack before.
        norm = "x = x * x.square().mean(-1, keepdim=True).rsqrt()\n        return x + "
        file = self.file("again.py", STEP.replace("return x + ", norm))
        times = {self.forecast(file, 8, options=["--device", "rtx4090", "--steps", "3"])[0]["ms"] for _ in range(3)}
        self.assertEqual(len(times), 1, times)


if __name__ == "__main__":
    unittest.main()
