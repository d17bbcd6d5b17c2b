"""attn_implementation="headroom" in tiny models of transformers with random weights: no further from FP64 than eager attention, times 1.5.

Exit code 77 says: skipped, and why. Runs on the CPU, and on a GPU where there is one.
"""

import copy
import unittest

from model_cases import DEVICES, LENGTH, OLD, WINDOW, Base, InDouble, apart, inputs_of, kinds, made, step, torch, transformers

import gpu_headroom.torch as ht


class ModelsTest(Base):
    def test_no_further_from_fp64_than_eager(self):
        table = []
        for device in DEVICES:
            for name, model, config, settings in kinds():
                config = config(**settings)
                torch.manual_seed(1)
                for padding in ("none",) if name == "ViT" else ("none", "right", "left", "packed"):
                    if padding == "packed" and name in ("GPT2", "ModernBert", "Bert", "T5"):
                        continue  # positions are learned, or not given
                    with self.subTest(model=name, padding=padding, device=device):
                        self.check(name, model, config, padding, device, table)
        print("\n" + "\n".join(table))

    def check(self, name, model, config, padding, device, table, dropped=False):
        inputs, real = inputs_of(name, padding, device)
        config = copy.deepcopy(config)
        config.use_cache = padding != "packed"  # transformers looks for documents only where there is no cache
        try:
            net = made(model, config, "eager", torch.float64, device)
        except (ImportError, ValueError) as refused:
            self.skipTest(str(refused))
        state = net.state_dict()
        with InDouble():
            exact = step(net, inputs, real, dropped)
        for dtype in (torch.float32, torch.bfloat16):
            eager = step(made(model, config, "eager", dtype, device, state), inputs, real, dropped)
            with ht.replace_sdpa() as seen:
                ours = step(made(model, config, "headroom", dtype, device, state), inputs, real, dropped)
            ratios = []
            for which in (lambda r: r[0], lambda r: list(r[1].values())):
                error, eagers = apart(which(ours), which(exact)), apart(which(eager), which(exact))
                ratios.append(error / eagers)
                self.assertLess(error, 1.5 * eagers, f"{name} {padding} {dtype}")
            self.assertEqual(ours[1].keys(), exact[1].keys())
            table.append(f"{name:10} {padding:6} {str(dtype)[6:]:8} {device:4} of eager's error: logits {ratios[0]:.2f} gradients {ratios[1]:.2f}"
                         f"  served {seen.served}, left {sum(seen.left.values())}")  # fmt: skip
            if name == "T5":
                self.assertIn("a bias of positions", seen.explain())
            else:
                self.assertEqual((seen.served, dict(seen.left)), (2, {}), seen.explain())

    def test_dropout_in_training(self):
        for device in DEVICES:
            for name, model, config, settings in kinds():
                attention_alone = {"GPT2": dict(attn_pdrop=0.2, resid_pdrop=0.0, embd_pdrop=0.0), "Llama": dict(attention_dropout=0.2),
                                   "Bert": dict(attention_probs_dropout_prob=0.2, hidden_dropout_prob=0.0)}.get(name)  # fmt: skip
                if attention_alone is None:
                    continue
                config, table = config(**settings, **attention_alone), []
                torch.manual_seed(1)
                for padding in ("none", "right"):
                    with self.subTest(model=name, padding=padding, device=device):
                        self.check(name, model, config, padding, device, table, dropped=True)
                print("\n" + "\n".join(table))
        names = {name: (model, config(**settings)) for name, model, config, settings in kinds() if name == "GPT2"}
        net = made(*names["GPT2"], "headroom", torch.float32, "cpu").train()  # as it comes: 0.1 everywhere
        tokens = torch.randint(3, 300, (2, 30), generator=torch.Generator().manual_seed(3))
        with ht.replace_sdpa() as seen:
            torch.manual_seed(1)
            first, second = net(tokens).logits, net(tokens).logits
            torch.manual_seed(1)
            self.assertTrue(torch.equal(first, net(tokens).logits))
        self.assertFalse(torch.equal(first, second))
        self.assertEqual((seen.served, dict(seen.left)), (6, {}), seen.explain())

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_packed_documents_are_apart(self):
        """Against each document alone, so that a test without documents cannot pass."""
        settings = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                        use_cache=False)  # fmt: skip
        for name in ("Llama", "Mistral"):
            _, net = self.twins(name, name + "ForCausalLM", dict(settings, sliding_window=7) if name == "Mistral" else settings)
            inputs, _ = inputs_of(name, "packed", "cpu")
            with ht.replace_sdpa() as seen:
                got = net(**inputs).logits
            self.assertEqual((seen.served, dict(seen.left)), (2, {}), seen.explain())
            for begin, end in ((0, 20), (20, 38), (38, 48)):
                self.assertLess((net(inputs["input_ids"][:, begin:end]).logits - got[:, begin:end]).abs().max().item(), 1e-4, name)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_padding_behind_a_sequence(self):
        """Its rows see what transformers lets them see: whole outputs of a batch are compared, and fed on."""
        settings = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        real = torch.ones(3, LENGTH, dtype=torch.long)
        real[0, 35:] = real[2, 40:] = 0
        for name in ("Llama", "Mistral"):
            eager, ours = self.twins(name, name + "ForCausalLM", dict(settings, sliding_window=WINDOW) if name == "Mistral" else settings)
            tokens = torch.randint(3, 300, (3, LENGTH), generator=torch.Generator().manual_seed(3))
            with self.subTest(model=name), ht.replace_sdpa() as seen:
                got = ours(tokens, attention_mask=real).logits
                self.assertEqual((seen.served, dict(seen.left)), (2, {}), seen.explain())
                self.assertLess((got - eager(tokens, attention_mask=real).logits).abs().max().item(), 1e-4)
                both = real.clone()
                both[2, :7] = 0
                keep = both.cumsum(1) > 0
                got = ours(tokens, attention_mask=both).logits
                self.assertLess((got - eager(tokens, attention_mask=both).logits)[keep].abs().max().item(), 1e-4)
                self.assertEqual((seen.served, dict(seen.left)), (4, {}), seen.explain())

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_rows_that_choose_their_keys(self):
        """Such models hand other names than "eager" and "sdpa" a list beside a mask that lets each row see every key before it: that was attended."""
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_experts_per_tok=2)  # fmt: skip
        tokens = torch.randint(3, 300, (2, 40), generator=torch.Generator().manual_seed(3))
        for name, settings, few in (
            ("DeepseekV32", dict(n_routed_experts=4, kv_lora_rank=32, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, n_group=1,
                                 topk_group=1, first_k_dense_replace=1, index_n_heads=2, index_head_dim=32, num_key_value_heads=4), "index_topk"),
            ("DeepseekV4", dict(n_routed_experts=4, num_key_value_heads=1, head_dim=32, partial_rotary_factor=0.25, q_lora_rank=32, o_groups=2, o_lora_rank=16,
                                n_shared_experts=1, mlp_layer_types=["moe", "moe"], sliding_window=8, hc_mult=2, index_n_heads=2, index_head_dim=16,
                                layer_types=["heavily_compressed_attention", "compressed_sparse_attention"], num_nextn_predict_layers=0), "index_topk"),
            ("MiniMaxM3VLText", dict(num_local_experts=4, num_key_value_heads=2, head_dim=16, dense_intermediate_size=64, shared_intermediate_size=32,
                                     layer_types=["full_attention", "minimax_m3_sparse"], mlp_layer_types=["dense", "sparse"], index_n_heads=2,
                                     index_head_dim=16, index_block_size=4, index_local_blocks=1), "index_topk_blocks"),
        ):  # fmt: skip
            model = "MiniMaxM3VLTextModel" if name.startswith("MiniMax") else name + "ForCausalLM"
            if not hasattr(transformers, model):
                continue
            with self.subTest(model=name), torch.no_grad():
                eager, ours = self.twins(name, model, {**sizes, **settings, few: 2})
                every, _ = self.twins(name, model, {**sizes, **settings, few: 40})
                every.load_state_dict(eager.state_dict())
                got, want, all_keys = (net(tokens)[0] for net in (ours, eager, every))
                self.assertGreater((want - all_keys).abs().max().item(), 1e-3)
                self.assertLess((got - want).abs().max().item(), 1e-4)

    def test_what_is_left_is_right(self):
        g = torch.Generator().manual_seed(3)
        tokens = torch.randint(3, 300, (2, 30), generator=g)
        holes = torch.ones(2, 30, dtype=torch.long)
        holes[0, 11:14] = 0
        four = torch.full((30, 30), torch.finfo(torch.float32).min).triu(1)[None, None].expand(2, 1, -1, -1)
        padded = four.clone()
        padded[1, :, :, :9] = four.min()  # so that nine rows see nothing
        wider = torch.nn.functional.pad(four, (0, 1), value=four.min().item())  # as transformers 4.48 makes it
        five = four + torch.linspace(0, 1, 30)  # not only 0 and the lowest
        chosen = {name: (model, config(**settings)) for name, model, config, settings in kinds() if name in ("Llama", "Gemma2", "GPT2")}
        for name, (model, config) in chosen.items():
            if OLD and name == "GPT2":  # it takes no mask of four dimensions
                continue
            torch.manual_seed(1)
            nets = [made(model, config, "eager", torch.float32, "cpu")]
            nets += [made(model, config, how, torch.float32, "cpu", nets[0].state_dict()) for how in ("headroom",)]
            served = (four, padded, wider)
            between = "a hole between the keys" if OLD else "padding between the tokens"
            cases = [(holes, between), (five, "the mask is a tensor .*a bias"), *((one, "served by headroom: 2") for one in served)]
            for said, words in cases:
                with self.subTest(model=name, words=words), ht.replace_sdpa() as seen:
                    want, got = (net(tokens, attention_mask=four if said is wider and net is nets[0] else said).logits for net in nets)
                    keep = said.bool() if said is holes else torch.ones(2, 30, dtype=torch.bool)
                    if said is padded:
                        keep[1, :9] = False
                    self.assertLess((want - got)[keep].abs().max().item(), 1e-4)
                    self.assertEqual(seen.served, 2 if any(said is one for one in served) else 0)
                    self.assertRegex(seen.explain(), words)
        net = made(*chosen["GPT2"], "headroom", torch.float32, "cpu")
        net(tokens)
        before = ht.explain()
        net(tokens)
        self.assertNotEqual(ht.explain(), before)
        self.assertIn("served by headroom", before)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_compiled(self):
        tokens = torch.randint(3, 300, (2, 30), generator=torch.Generator().manual_seed(3))
        for name, model, config, settings in kinds():
            if name not in ("Llama", "Mistral"):
                continue
            torch.manual_seed(1)
            net = made(model, config(**settings), "headroom", torch.float32, "cpu")
            want = net(tokens).logits
            with ht.replace_sdpa() as seen:
                got = torch.compile(net, backend="aot_eager")(tokens).logits
            self.assertLess((want - got).abs().max().item(), 1e-4)
            self.assertIn("compiled: 2 calls" if name == "Llama" else "cannot be read while it is compiled", seen.explain())
            torch._dynamo.reset()


if __name__ == "__main__":
    unittest.main()
