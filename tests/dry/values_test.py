"""Values of the card that a program reads and that are known: small integers and masks are computed again."""

import unittest

from dry_program import Dry


class Values(Dry):
    def test_the_windows_of_a_spectrum_add_up_to_more_than_nothing(self):
        program = """
            import torch
            spectrum = torch.randn(2, 129, 40, dtype=torch.complex64, device="cuda")
            for window in torch.hann_window(256).cuda(), torch.rand(256, device="cuda"):
                print(*torch.istft(spectrum, 256, 64, window=window, length=2400).shape)
            """
        self.assertEqual(self.dry(program)[0], ["2 2400", "2 2400"])

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

    def test_functions_of_pytorch_that_a_program_replaces_are_not_used(self):
        """DeepSpeed's zero.Init makes weights in half precision so: half the memory that a copy of the values needs."""
        lines, _ = self.dry("""
            import torch
            empty, ones, asked = torch.empty, torch.ones, []
            def halved(made):
                def make(*size, **how):
                    asked.append(how.get("device"))
                    how["device"] = how.get("device") or "cuda"
                    t = made(*size, **how)
                    if t.is_floating_point():
                        t.data = t.data.to(torch.bfloat16)
                    return t
                return make
            torch.empty, torch.ones = halved(empty), halved(ones)
            x = torch.ones(1000)
            print(x.dtype, x.device.type, x[7].item(), (x[:3] + 1).tolist(), asked)
            """)
        self.assertEqual(lines, ["torch.bfloat16 cuda 1.0 [2.0, 2.0, 2.0] [None]"])

    def test_a_row_that_a_table_does_not_have_is_told_with_its_line(self):
        """A card's kernel asserts, and every later call fails, elsewhere."""
        lines, marks = self.dry("""
            import torch
            from torch.nn import functional as F
            words, net = torch.nn.Embedding(100, 8).cuda(), torch.nn.Linear(8, 5).cuda()
            ids, labels = torch.tensor([[3, 99], [0, 7]]), torch.tensor([0, 4, -100, 2])
            F.cross_entropy(net(words(ids.cuda())).flatten(0, 1), labels.cuda()).backward()
            words(torch.randint(200, (9,), device="cuda"))
            for _ in range(2):
                words(ids.add(1).cuda())
                F.cross_entropy(net(torch.randn(4, 8, device="cuda")), (labels - 1).cuda())
            pixels = torch.tensor([[[0, 255], [1, 4]]]).cuda()
            F.cross_entropy(torch.randn(1, 5, 2, 2, device="cuda"), pixels, ignore_index=255)
            F.cross_entropy(torch.randn(1, 5, 2, 2, device="cuda"), pixels)
            torch.nn.EmbeddingBag(7, 8).cuda()(pixels[0])
            torch.nn.EmbeddingBag(7, 8).cuda()(pixels[0].clamp(max=7) - 1)
            print(words.weight.grad.shape[0])
        """)
        self.assertEqual(lines, ["100"])
        notes = [m[1].rsplit("/", 1)[1] for m in marks if m[0] == "note"]
        self.assertEqual(notes, ["program.py:9 takes 100 as a row of 100: a card ends the program there (device-side assert)",
                                 "program.py:10 takes -1 as a label of 5 kinds: a card ends the program there (device-side assert)",
                                 "program.py:13 takes 255 as a label of 5 kinds: a card ends the program there (device-side assert)",
                                 "program.py:14 takes 255 as a row of 7: a card ends the program there (device-side assert)",
                                 "program.py:15 takes -1 as a row of 7: a card adds what lies before the table, or ends the program"])

    def test_a_row_that_may_follow_from_an_unknown_value_is_told_so(self):
        lines, marks = self.dry("""
            import torch
            words = torch.nn.Embedding(100, 8).cuda()
            last = torch.randn(8, device="cuda").sum().long().item() - 1
            words(torch.tensor([last], device="cuda"))
        """)
        self.assertEqual([m[1].rsplit("/", 1)[1] for m in marks if m[0] == "note"],
                         ["program.py:5 takes -1 as a row of 100: a card ends the program there (device-side assert), "
                          "unless it follows from a value of the card that the program read before"])

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

    def test_elements_that_are_in_another_tensor(self):
        """PyTorch asks for the number of different ones in a way of its own."""
        lines, marks = self.dry("""
            import torch
            x = torch.arange(1000, device="cuda") // 2
            print(torch.isin(x, torch.arange(300, device="cuda")).sum().item(), torch._unique(x)[0].shape[0], torch._unique(x > 3)[0].shape[0])
        """)
        self.assertEqual((lines, [m for m in marks if m[0] == "value"]), (["600 500 2"], []))

    def test_many_whole_numbers_of_the_host_are_known_on_the_card(self):
        """The edges of a graph: the largest of them says how many nodes there are. What the host does to its own afterwards changes nothing."""
        lines, marks = self.dry("""
            import torch
            host = torch.arange(1 << 21).view(2, -1) % 70000
            edges, few = host.cuda(), torch.empty(2, 1 << 20, dtype=torch.int32, device="cuda").copy_(host)
            host.zero_()
            print(int(edges.max()) + 1, int(few.max()), (edges[0] == 7).sum().item(), edges[0, -3].item() == (1 << 20) - 3 - 14 * 70000)
            edges.random_()
            print(torch.zeros(2, 1 << 20, dtype=torch.long).cuda().max().item())
        """)
        self.assertEqual(lines, ["70000 69999 15 True", "0"])

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
        self.assertEqual(lines, [str([4 * i + 4 for i in range(8)]), "128", "128", "torch.Size([8, 32, 64]) torch.Size([8, 32, 64])"], "half of what is not known")

    def test_a_scaler_that_falls_slowly_skips_more_steps(self):
        _, marks = self.dry("""
            import torch
            p = torch.nn.Parameter(torch.randn(8, 8, device="cuda"))
            s, o = torch.amp.GradScaler("cuda", init_scale=256.0, backoff_factor=0.5 ** 0.25), torch.optim.SGD([p])
            s.scale(p.sum()).backward()
            s.step(o)
            s.update()
        """)
        self.assertEqual([m for m in marks if m[0] == "scaled"], [("scaled", "", 32)])

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
        self.assertEqual([m for m in marks if m[0] == "scaled"], [("scaled", "", 16)], "so many halvings, at most, and as many steps that a card skips")
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


if __name__ == "__main__":
    unittest.main()
