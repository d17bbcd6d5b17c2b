"""attn_implementation="headroom": the masks that it gives transformers' models, what these do with them, and masks that modules bring."""

import importlib
import importlib.util
import itertools
import os
import sys
import tempfile
import unittest
import unittest.mock

from model_cases import OLD, Base, inputs_of, torch, transformers

import gpu_headroom.torch as ht
from gpu_headroom.torch import models
from gpu_headroom.torch.imports import when_imported


class MasksTest(Base):
    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_a_module_that_does_not_say_whether_it_is_causal(self):
        """CLAP's and ALIGN's encoders of text: without a mask they see every key, and were given those before."""
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
        tokens = torch.randint(3, 300, (2, 20), generator=torch.Generator().manual_seed(3))
        for name in ("ClapText", "AlignText"):
            for asked in ({}, {"output_attentions": True}):
                with self.subTest(model=name, asked=asked), torch.no_grad():
                    want, got = (net(tokens, **asked)[0] for net in self.twins(name, name + "Model", sizes))
                    self.assertLess((got - want).abs().max().item(), 1e-4)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_probabilities_that_are_asked_for(self):
        """Eager attention has them; sdpa, to which they were left, has none."""
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                     pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
        for (name, model), padding in itertools.product((("Llama", "LlamaForCausalLM"), ("Bert", "BertForMaskedLM")), ("none", "left", "right")):
            with self.subTest(model=name, padding=padding), torch.no_grad():
                inputs, _ = inputs_of(name, padding, "cpu")
                want, got = (net(**inputs, output_attentions=True).attentions for net in self.twins(name, model, sizes))
                self.assertEqual(len(got), 2)
                for a, b in zip(got, want):
                    self.assertLess((a - b).abs().max().item(), 1e-5)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_a_mask_among_booleans(self):
        """Beside booleans it is booleans, as a model finds it that puts its own part behind it (T5Gemma 2); else it is what eager attention adds."""
        importlib.import_module("transformers.masking_utils")
        said = models.mask(batch_size=2, q_length=5, kv_length=5, device=torch.device("cpu"), dtype=torch.float32)
        seen, own = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril(), torch.tensor([True, False, True]).expand(2, 1, 5, 3)
        for got, want in (
            (torch.cat([said, own], dim=-1), torch.cat([seen, own], dim=-1)), (said & ~seen, seen & ~seen), (seen | said, seen), (~said, ~seen),
            (torch.logical_and(said, own[..., :1]), seen & own[..., :1]), (said == 0, seen), (said != 0, ~seen), (said >= 0, seen),
            (torch.cat([said, own.float()], dim=-1)[..., 5:], own.float()), (said[..., 0, :1], torch.zeros(2, 1, 1)),
        ):  # fmt: skip
            self.assertTrue(torch.equal(got, want))
        added = torch.zeros(2, 1, 5, 5).masked_fill(~seen, torch.finfo(torch.float32).min)  # MRA and YOSO divide it by 10000
        for got, want in (
            (1.0 + said / 1e4, 1.0 + added / 1e4), (1e4 / (said - 1), 1e4 / (added - 1)), (-said, -added), (abs(said), abs(added)),
            (said // 2, added // 2), (said**0, added**0), (said % 3, added % 3), (2 // (said - 1), 2 // (added - 1)),
            ((said / 1e38) @ torch.ones(5, 2), (added / 1e38) @ torch.ones(5, 2)), (torch.ones(5, 5) @ (said / 1e38), torch.ones(5, 5) @ (added / 1e38)),
        ):  # fmt: skip
            self.assertTrue(torch.equal(got, want))
        self.assertFalse(said == None)  # noqa: E711
        self.assertTrue(said in [said])
        self.assertEqual(len({said, said}), 1)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_padding_is_not_recorded(self):
        """What torch.jit.trace wrote down without padding is right with padding."""
        config = transformers.LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                          use_cache=False, attn_implementation="headroom")  # fmt: skip
        model, tokens = transformers.LlamaModel(config).eval().requires_grad_(False), torch.arange(14).view(2, 7)
        call = lambda tokens, seen: model(input_ids=tokens, attention_mask=seen).last_hidden_state  # noqa: E731
        every, padded = torch.ones(2, 7, dtype=torch.int64), (torch.arange(7) >= torch.tensor([[3], [0]])).long()
        made = torch.jit.trace(call, (tokens, every), check_trace=False)
        got, want = made(tokens, padded), call(tokens, padded)
        self.assertLess((got - want)[padded.bool()].abs().max().item(), 1e-5)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_shapes_alone(self):
        """Estimates of memory run a model with fake or meta tensors, whose padding says nothing."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        sizes = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, sliding_window=4)
        for name, model in (("Llama", "LlamaForCausalLM"), ("Mistral", "MistralForCausalLM"), ("Bert", "BertModel")):
            real = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
            for where, mode in (("fake", FakeTensorMode(allow_non_fake_inputs=True)), ("meta", torch.device("meta"))):
                with self.subTest(name, where=where), mode:
                    net = getattr(transformers, model)._from_config(getattr(transformers, f"{name}Config")(**sizes), attn_implementation="headroom")
                    tokens = torch.zeros((2, 6), dtype=torch.int64)
                    for padding in (None, torch.ones_like(tokens), real if where == "fake" else real.to("meta")):
                        made = net(input_ids=tokens, attention_mask=padding)[0]
                        self.assertEqual(made.shape[:2], (2, 6))
                        made.sum().backward()

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_keys_that_a_mask_does_not_know_are_refused(self):
        """A model that adds keys to those that its mask was made for, as DeepSeek V4 does: rows saw the wrong ones."""
        importlib.import_module("transformers.masking_utils")
        said = models.mask(batch_size=1, q_length=5, kv_length=5, device=torch.device("cpu"), dtype=torch.float32)
        q, k = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 6, 16)
        with self.assertRaisesRegex(ValueError, "Linear has 6 keys and a mask of 5: .*attn_implementation='eager'"):
            models.attend(torch.nn.Linear(1, 1), q, k, k, said)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_models_that_read_the_mask_themselves(self):
        """They add it to their scores, and never ask transformers' attention interface: right, and explained."""
        sizes = dict(vocab_size=300, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        for name, model, settings in (
            ("Bloom", "BloomForCausalLM", dict(hidden_size=64, n_layer=2, n_head=4)),
            ("CodeGen", "CodeGenForCausalLM", dict(n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=64)),
            ("XGLM", "XGLMForCausalLM", dict(d_model=64, ffn_dim=128, num_layers=2, attention_heads=4)),
            ("RoFormer", "RoFormerForMaskedLM", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)),
        ):
            for padding in ("none", "left"):
                with self.subTest(model=name, padding=padding), ht.replace_sdpa() as seen:
                    eager, ours = self.twins(name, model, {**sizes, **settings})
                    inputs, real = inputs_of(name, padding, "cpu")
                    keep = slice(None) if real is None else real
                    self.assertLess((eager(**inputs).logits - ours(**inputs).logits)[keep].abs().max().item(), 1e-5)
                    if (name, padding) != ("RoFormer", "none"):  # it is given no mask
                        self.assertRegex(seen.explain(), "the model adds its mask itself|served by headroom: [1-9]")  # CodeGen asks from 5.24 on
        with self.assertRaisesRegex(ValueError, "FalconForCausalLM chooses among attention classes of its own.*'sdpa' inside .*replace_sdpa"):
            self.twins("Falcon", "FalconForCausalLM", dict(sizes, hidden_size=64, num_hidden_layers=2, num_attention_heads=4))

    def test_a_module_that_was_only_looked_for_is_known_once_it_is_imported(self):
        """transformers' masks were not: the padding of whoever had looked for transformers.masking_utils was left out without a word."""
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(sys, "path", [folder, *sys.path]):
            with open(os.path.join(folder, "imported_later.py"), "w") as file:
                file.write("from_it = 1")
            seen = []
            when_imported("imported_later", lambda module: seen.append(module.from_it))
            when_imported("imported_later", lambda module: seen.append(module.from_it + 1))
            self.assertIsNotNone(importlib.util.find_spec("imported_later"))
            self.assertEqual(seen, [])
            module = importlib.import_module("imported_later")
            self.assertEqual(sorted(seen), [1, 2])
            importlib.reload(module)
            self.assertEqual(sorted(seen), [1, 2])

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_a_mask_is_moved_as_a_tensor_is(self):
        _, net = self.twins("Llama", "LlamaForCausalLM", dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                                              num_attention_heads=4))  # fmt: skip
        said, attended = [], net.model.layers[0].forward
        net.model.layers[0].forward = lambda *a, **named: said.append(named["attention_mask"]) or attended(*a, **named)
        inputs, _ = inputs_of("Llama", "left", "cpu")
        net(**inputs)
        (mask,) = said
        for moved in (mask.to("meta"), mask.to(device=torch.device("meta"), non_blocking=True)):
            self.assertIsInstance(moved, models.Mask)
            self.assertEqual((moved.cu_q.device.type, moved.cu_k.device.type, mask.cu_q.device.type), ("meta", "meta", "cpu"))
        self.assertEqual(mask.to(torch.float64).dtype, torch.float64)
        self.assertTrue(torch.equal(mask[:, :, :2], mask.added()[:, :, :2]))

    def test_a_padding_that_leaves_the_order_to_the_module(self):
        """As GPT-2's before transformers 4.53: its order of tokens is a buffer of the module."""
        g = torch.Generator().manual_seed(3)
        q, k, v = (torch.randn(2, 2, 12, 16, generator=g) for _ in range(3))
        module = torch.nn.Module()
        module.bias, module.is_causal = torch.ones(1, 1, 20, 20, dtype=torch.bool).tril(), True
        padding = torch.zeros(2, 1, 1, 12)
        padding[1, ..., :5] = torch.finfo(torch.float32).min
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, module.bias[..., :12, :12] & (padding == 0)).transpose(1, 2)
        with unittest.mock.patch.dict(sys.modules), ht.replace_sdpa() as seen:
            sys.modules.pop("transformers.masking_utils", None)
            for given in (padding, padding.clone()):
                got = models.attend(module, q, k, v, given, is_causal=False)[0]
                self.assertLess((got[0] - want[0]).abs().max().item(), 1e-5)
                self.assertLess((got[1, 5:] - want[1, 5:]).abs().max().item(), 1e-5)
        self.assertEqual(seen.served, 2, seen.explain())


if __name__ == "__main__":
    unittest.main()
