"""Random weights of models that are made on the CPU: what they are, what they cost, and what is drawn after them."""

import os
import subprocess
import sys
import textwrap
import unittest

from dry_program import Dry

MODEL = """
import copy, torch
from torch import nn
torch.manual_seed(3)
"""


class Weights(Dry):
    def compared(self, program):
        """The same lines dry as on a machine of CPUs: the program prints what it reads."""
        plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
        real = subprocess.run([sys.executable, "-c", textwrap.dedent(MODEL + textwrap.dedent(program))], env=plain, capture_output=True, text=True, timeout=60)
        self.assertEqual(real.stderr, "")
        lines, _ = self.dry(MODEL + textwrap.dedent(program))
        self.assertEqual(lines, real.stdout.split("\n")[:-1])
        self.assertGreater(len(lines), 0)

    def test_numbers_drawn_after_a_model_are_the_same(self):
        self.compared("""
            for dtype in torch.float32, torch.bfloat16, torch.float16, torch.float64:
                for make in (lambda: nn.Linear(1201, 1013, dtype=dtype), lambda: nn.Embedding(3000, 701, dtype=dtype),
                             lambda: nn.init.trunc_normal_(torch.empty(1100, 1021, dtype=dtype), std=0.02), lambda: nn.Conv2d(300, 1203, 3, dtype=dtype)):
                    make()
                    print(torch.rand(1).item(), torch.randint(10 ** 6, (2,)).tolist(), torch.randn(20)[17].item())
            own = torch.Generator().manual_seed(5)
            nn.init.normal_(torch.empty(1100, 1000), generator=own)
            print(torch.rand(1, generator=own).item(), torch.rand(1).item())
            torch.manual_seed(7)
            nn.Linear(2000, 2000)
            state = torch.get_rng_state()
            print(torch.rand(1).item())
            torch.set_rng_state(state)
            print(torch.rand(1).item())
        """)

    def test_weights_that_are_read_are_what_the_program_drew(self):
        self.compared("""
            def said(t):
                print(t.dtype, t.shape, t.double().sum().item(), t.flatten()[[0, 7, -1]].tolist(), t.isnan().any().item())
            net = nn.Sequential(nn.Linear(1200, 1000), nn.Embedding(2000, 600, padding_idx=3))
            said(net[0].weight.detach())
            said(net[1].weight.data[2:5])
            for fill in nn.init.xavier_normal_, nn.init.kaiming_uniform_, nn.init.trunc_normal_, nn.init.orthogonal_, lambda w: nn.init.sparse_(w, 0.5):
                w = nn.Parameter(torch.empty(700, 600))
                fill(w)
                said(w.detach())
            net = nn.Linear(1200, 1000)
            net.weight.data.normal_(std=0.02)
            said(net.weight.data)
            for wrong in lambda: net.weight.data.uniform_(1, 0), lambda: net.weight.data.normal_(std=-1):
                try:
                    wrong()
                except RuntimeError as e:
                    print(str(e).splitlines()[0])
            said(net.weight.data)
            for wrong in lambda: net.weight.data.clamp_(), lambda: net.weight.data.add_(1j), lambda: net.weight.data.sub_(True):
                net = nn.Linear(1200, 1000)
                try:
                    wrong()
                except RuntimeError as e:
                    print(str(e).splitlines()[0])
                said(net.weight.data)
            net.weight.data[3:].normal_()
            said(net.weight.data)
            net = nn.Linear(1200, 1000)
            net.load_state_dict(net.state_dict())
            said(net.weight.data)
            with torch.no_grad():
                net.weight.mul_(3).add_(0.5).clamp_(-0.2, 0.7)
                net.weight[5:9].zero_()
            half, twin = copy.deepcopy(net).half(), copy.deepcopy(net)
            rows = net.weight.detach()[::2].to(torch.bfloat16)
            net.weight.data.fill_(1)
            said(half.weight.detach())
            said(twin.weight.detach())
            said(rows)
            said(net.weight.detach())
            other = nn.Linear(1200, 1000)
            other.load_state_dict(twin.state_dict())
            print(torch.equal(other.weight, twin.weight), (other.weight != twin.weight).sum().item(), torch.allclose(half.weight.float(), twin.weight, atol=1e-2))
        """)

    def test_a_model_that_stays_on_the_cpu_computes_with_its_weights(self):
        self.compared("""
            x = torch.randn(2, 1200)
            teacher, table, filters = nn.Linear(1200, 1000), nn.Embedding(1000, 600), nn.Conv1d(1200, 400, 3)
            print(teacher(x).sum().item(), table(torch.tensor([[1, 3]])).sum().item(), filters(torch.randn(1, 1200, 9)).sum().item())
            other = nn.Linear(1200, 1000)
            print((other.weight @ x.T).sum().item(), torch.linalg.vector_norm(nn.Linear(1200, 1000).weight).item(), torch.linalg.qr(nn.Linear(600, 700).weight)[1][0, 0].item())
            print(torch.linalg.svdvals(nn.Linear(600, 700).weight)[:3].tolist())
            read = nn.Linear(600, 700).weight.detach()
            print(read.numpy().sum(), nn.Linear(600, 700).weight.tolist()[5][:4])
        """)

    def test_every_operation_of_the_cpu_reads_what_was_drawn(self):
        """Some that few programs call on a weight: each operation with a kernel of the CPU is seen."""
        self.compared("""
            F, made = nn.functional, lambda: nn.Linear(1200, 1000).weight.detach()
            print(F.interpolate(made()[None, None], scale_factor=0.5, mode="bilinear").sum().item(), F.max_pool2d(made()[None], 2).sum().item())
            print(F.scaled_dot_product_attention(*[made()[None, None]] * 3).sum().item(), F.pixel_shuffle(made().view(1, 1000, 30, 40), 2)[0, 0, 5, 5].item())
            print(made().trace().item(), F.mse_loss(made(), torch.zeros(1000, 1200)).item(), made().nan_to_num().sum().item(), torch.fft.fft(made()).abs().sum().item())
            print(F.mish(made()).sum().item(), F.hardswish(made()).sum().item(), torch.signbit(made()).sum().item(), torch.ldexp(made(), torch.tensor([2])).sum().item())
            print(torch.fake_quantize_per_tensor_affine(made(), 0.01, 0, -128, 127).sum().item(), made().resize_(2000, 1200)[:1000].sum().item())
            torch.sparse.check_sparse_tensor_invariants.enable()
            class Own(torch.Tensor):
                pass
            print(made().as_subclass(Own).sum().item(), torch.sparse_coo_tensor(torch.arange(1000)[None], made()).to_dense().sum().item())
        """)

    def test_files_and_compiled_functions_have_the_weights(self):
        self.compared("""
            import io, pickle
            from torch._subclasses.fake_tensor import FakeTensorMode
            net, file = nn.Linear(1200, 1000), io.BytesIO()
            torch.save(net.state_dict(), file)
            file.seek(0)
            print(torch.load(file)["weight"].sum().item(), pickle.loads(pickle.dumps(nn.Linear(1200, 1000))).weight.sum().item())
            try:
                import safetensors.torch
                print(safetensors.torch.load(safetensors.torch.save(nn.Linear(1200, 1000).state_dict()))["weight"].sum().item())
            except ImportError:
                pass
            net = nn.Linear(1200, 1000)
            with FakeTensorMode() as mode:
                print(mode.from_tensor(net.weight).shape)
            print(torch.frombuffer((__import__("ctypes").c_char * 4800000).from_address(net.weight.data_ptr()), dtype=torch.float32).sum().item())
        """)

    def test_collectives_of_the_cpu_and_nested_tensors_have_the_weights(self):
        self.compared("""
            import warnings
            import torch.distributed as dist
            from torch.distributed import tensor
            warnings.simplefilter("ignore")
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            def weight():
                return nn.Linear(1200, 1000).weight.detach()
            w = [torch.zeros(1000, 1200)]
            dist.all_gather(w, weight())
            print(w[0].double().sum().item())
            w = torch.zeros(1000, 1200)
            dist.all_gather_into_tensor(w, weight())
            print(w.double().sum().item())
            w = weight()
            dist.all_reduce(w)
            print(w.double().sum().item())
            mesh = dist.init_device_mesh("cpu", (1,))
            for placed in tensor.Shard(0), tensor.Replicate():
                print(tensor.distribute_tensor(weight(), mesh, [placed]).to_local().double().sum().item())
            print(torch.nested.nested_tensor([weight(), weight()]).values().double().sum().item())
            print(torch.nested.as_nested_tensor([weight(), weight()]).values().double().sum().item())
            dist.destroy_process_group()
        """)

    def test_threads_that_read_one_weight_wait_for_it(self):
        self.compared("""
            import threading
            net, sums = nn.Linear(4000, 4000), set()
            threads = [threading.Thread(target=lambda: sums.add(net.weight.detach()[-1, -1].item())) for _ in range(6)]
            for t in threads: t.start()
            for t in threads: t.join()
            print(sums)
        """)

    def test_layer_after_layer_that_moves_costs_no_kernels_for_each(self):
        lines, _ = self.dry("""
            import torch
            from torch import nn
            from headroom_dry.weights import Weights
            looked, look = [], Weights.look_at_products
            Weights.look_at_products = lambda self: looked.append(look(self))
            for _ in range(200):
                nn.Linear(1000, 1000).cuda()
            print(0 < len(looked) < 30)
        """)
        self.assertEqual(lines, ["True"])

    def test_hooks_of_saved_tensors_copy_within_an_operation(self):
        lines, _ = self.dry(MODEL + textwrap.dedent("""
            def small(x):
                return (x.to(torch.float16), x.dtype) if x.dtype is torch.float32 else (x, x.dtype)
            net = nn.Sequential(nn.Linear(1200, 1000), nn.Linear(1000, 1200)).cuda()
            head = nn.Linear(1200, 1000).cuda()
            for step in range(3):
                with torch.autograd.graph.saved_tensors_hooks(small, lambda kept: kept[0].to(kept[1])):
                    loss = head(net(torch.randn(64, 1200, device="cuda"))).sum()
                loss.backward()
                print(step, net[0].weight.grad.shape)
        """))
        self.assertEqual(lines, [f"{step} torch.Size([1000, 1200])" for step in range(3)])

    def test_before_pytorch_2_8_hooks_of_saved_tensors_cannot_be_asked_for(self):
        lines, _ = self.dry(MODEL + textwrap.dedent("""
            torch._C._autograd.__dict__.pop("_top_saved_tensors_default_hooks", None)
            def small(x):
                return (x.to(torch.float16), x.dtype) if x.dtype is torch.float32 else (x, x.dtype)
            net = nn.Sequential(nn.Linear(1200, 1000), nn.Linear(1000, 1200)).cuda()
            with torch.autograd.graph.saved_tensors_hooks(small, lambda kept: kept[0].to(kept[1])):
                loss = net(torch.randn(64, 1200, device="cuda")).sum()
            loss.backward()
            with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
                net = nn.Linear(1200, 1000).cuda()
                try:
                    torch.autograd.graph.save_on_cpu().__enter__()
                except RuntimeError as e:
                    print(e)
            with torch.autograd.graph.save_on_cpu():
                print(net(torch.randn(64, 1200, device="cuda")).shape)
        """))
        self.assertEqual(lines, ["none here", "torch.Size([64, 1000])"])

    def test_a_teacher_on_the_cpu_beside_a_student_on_the_card(self):
        program = """
            teacher, student, late = nn.Linear(1200, 1000), nn.Linear(1200, 1000), nn.Linear(1200, 1000)
            x = torch.randn(2, 1200)
            student.to(DEVICE)
            student(x.to(DEVICE))
            x.to(DEVICE)
            print(teacher(x).sum().item(), torch.rand(1).item())
            print(late.weight.abs().sum().item())
            x.to(DEVICE)
        """
        lines, _ = self.dry(MODEL + textwrap.dedent(program.replace("DEVICE", '"cuda"')) + textwrap.dedent("""
            has = torch._C._dispatch_has_kernel_for_dispatch_key
            print(has("aten::mm", "BackendSelect"), has("aten::addmm", "BackendSelect"), "numpy" in vars(torch.Tensor))
        """))
        plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
        real = subprocess.run([sys.executable, "-c", textwrap.dedent(MODEL + textwrap.dedent(program.replace("DEVICE", '"cpu"')))], env=plain, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(lines, [*real.stdout.split("\n")[:-1], "False False False"])

    def test_a_truncated_normal_draw_waits_too(self):
        """Five operations, as torchvision and timm make weights: one of them, `erfinv_`, is no operation of a step."""
        lines, _ = self.dry("""
            import torch
            from torch import nn
            from headroom_dry import steps
            w = nn.Parameter(torch.empty(1100, 1021))
            nn.init.trunc_normal_(w, std=0.02, a=-0.04, b=0.04)
            held = steps.values.undrawn_of(w)
            print(held is not None and len(held.calls))
            out = torch.empty(1100, 1021)
            torch.erfinv(w.detach(), out=out)
            print(steps.values.undrawn_of(w), out.isfinite().all().item(), out.abs().max().item() > 0)
        """)
        self.assertEqual(lines, ["5", "None True True"])

    def test_a_model_on_its_way_to_the_card_takes_no_memory(self):
        lines, _ = self.dry("""
            import copy, resource, torch
            from torch import nn
            def taken():
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 10
            nn.Linear(10, 10).cuda()
            before = taken()
            net = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(4)), nn.Embedding(50000, 4096, padding_idx=0))
            kept = copy.deepcopy(net)
            kept.to(torch.bfloat16)
            for p in kept.parameters():
                p.data = p.data.pin_memory()
            net.cuda()
            kept.cuda()
            print(taken() - before < 300, torch.cuda.memory_allocated() > 2800e6)
        """)
        self.assertEqual(lines, ["True True"])

    def test_data_is_drawn_at_once(self):
        """Only a model's weights wait: labels that follow from data do not go by zeros, whatever reads them."""
        self.compared("""
            data = torch.randn(1000, 700)
            print(data.numpy().sum().item(), (torch.empty(1000, 700).uniform_() > 0.5).numpy().sum().item())
        """)


if __name__ == "__main__":
    unittest.main()
