"""attn_implementation="headroom" in tiny models of transformers with random weights: no further from FP64 than eager attention, times 1.5.

Exit code 77 says: skipped, and why. Runs on the CPU, and on a GPU where there is one.
"""

import contextlib
import copy
import importlib.util
import os
import sys
import tempfile
import unittest
import unittest.mock

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from torch.overrides import TorchFunctionMode

import gpu_headroom.torch as ht
from draws import kept
from gpu_headroom.torch import models
from gpu_headroom.torch.imports import when_imported

OLD = importlib.util.find_spec("transformers.masking_utils") is None  # before 4.53: masks are tensors, and fewer models ask the interface
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
LENGTH, WINDOW = 48, 16


class InDouble(TorchFunctionMode):
    """A model in float64 whose own casts to float32 are not made."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def of(x):
            return torch.float64 if x is torch.float32 else x

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*[of(x) for x in args], **{name: of(x) for name, x in (kwargs or {}).items()})


def kinds():
    """(name, model's class, config's class, settings)"""
    ends = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256, **ends)
    grouped = dict(sizes, num_key_value_heads=2)
    wide, both = dict(grouped, head_dim=24), ["sliding_attention", "full_attention"]
    every = (
        ("Llama", "LlamaForCausalLM", wide), ("Qwen2", "Qwen2ForCausalLM", grouped), ("Qwen3", "Qwen3ForCausalLM", wide),
        ("Gemma2", "Gemma2ForCausalLM", dict(wide, sliding_window=WINDOW, attn_logit_softcapping=3.0, query_pre_attn_scalar=24)),
        ("Gemma3Text", "Gemma3ForCausalLM", dict(wide, sliding_window=WINDOW, query_pre_attn_scalar=24, layer_types=both)),
        ("Mistral", "MistralForCausalLM", dict(wide, sliding_window=WINDOW)), ("Phi3", "Phi3ForCausalLM", dict(grouped, sliding_window=WINDOW)),
        ("Olmo2", "Olmo2ForCausalLM", grouped),
        ("GptOss", "GptOssForCausalLM", dict(wide, num_local_experts=4, num_experts_per_tok=4, sliding_window=WINDOW, layer_types=both,
                                             rope_parameters={"rope_type": "default", "rope_theta": 1e4})),
        ("GPT2", "GPT2LMHeadModel", dict(vocab_size=300, n_embd=64, n_layer=2, n_head=4, n_positions=256, **ends)),
        ("ModernBert", "ModernBertForMaskedLM", dict(sizes, local_attention=WINDOW, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2)),
        ("Bert", "BertForMaskedLM", sizes),
        ("T5", "T5ForConditionalGeneration", dict(vocab_size=300, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0,
                                                  pad_token_id=0, eos_token_id=2)),
        ("ViT", "ViTForImageClassification", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, num_labels=300,
                                                 patch_size=8)),
    )  # fmt: skip
    for name, model, settings in every:
        config = getattr(transformers, name + "Config", None)
        if OLD and name in ("ModernBert", "Bert", "T5", "ViT"):  # refused in a sentence, or never asked
            continue
        if config is not None and hasattr(transformers, model):
            yield name, getattr(transformers, model), config, settings


def made(model, config, attention, dtype, device, state=None):
    config = copy.deepcopy(config)
    net = model._from_config(config, attn_implementation=attention)
    assert net.config._attn_implementation == attention
    if hasattr(net, "set_experts_implementation"):
        try:
            net.set_experts_implementation("eager")  # the grouped product has no float64
        except (ValueError, KeyError):
            pass
    if state is not None:
        net.load_state_dict(state)
    return net.to(device, dtype).eval()


def inputs_of(name, padding, device):
    """(inputs, which positions are real)"""
    g = torch.Generator().manual_seed(3)
    if name == "ViT":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=g, dtype=torch.float64).to(device)}, None
    inputs, real = {"input_ids": torch.randint(3, 300, (2, LENGTH), generator=g)}, torch.ones(2, LENGTH, dtype=torch.bool)
    if padding in ("left", "right"):
        real[1, slice(0, 13) if padding == "left" else slice(30, None)] = False
        inputs["attention_mask"] = real.long()
    if padding == "packed":
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in (20, 18, 10)])[None].expand(2, -1)
    if name == "T5":
        inputs["decoder_input_ids"], real = inputs["input_ids"][:, :20], None
    return {k: v.to(device) for k, v in inputs.items()}, real if real is None else real.to(device)


def step(net, inputs, real, dropped=False):
    """Logits of real positions, and every gradient of a sum of them, in float64. dropped: in training, where attention drops what Dropped says."""
    dtype = next(net.parameters()).dtype
    with Dropped() if dropped else contextlib.nullcontext():
        logits = net.train(dropped)(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}).logits
        logits = logits if real is None else logits[real]
        up = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(logits.device, logits.dtype)
        (logits * up).sum().backward()
    return [logits.detach().double().cpu()], {n: p.grad.double().cpu() for n, p in net.named_parameters() if p.grad is not None}


class Dropped:
    """Within it the n-th dropout of probabilities has the seed [n, 0]: in our calls, and in eager attention, which is given our mask."""

    def __enter__(self):
        self.before = models.seed_of, torch.nn.functional.dropout
        models.seed_of, torch.nn.functional.dropout = self.seed_of, self.dropout
        self.ours = self.eagers = 0
        return self

    def __exit__(self, *_):
        models.seed_of, torch.nn.functional.dropout = self.before

    def seed_of(self, q, dropout, seed=None):
        if dropout == 0:
            return None
        self.ours += 1
        return torch.tensor([self.ours, 0], device=q.device)

    def dropout(self, x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        self.eagers += 1
        return x * torch.from_numpy(kept(self.eagers, 0, p, *x.shape)).to(x.device, x.dtype)


def apart(got, exact):
    """The mean over tensors of the error's size beside the tensor's."""
    sizes = [w.norm().item() for w in exact]
    return sum((g - w).norm().item() / n for g, w, n in zip(got, exact, sizes) if n > 1e-12) / len(sizes)


class ModelsTest(unittest.TestCase):
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

    def test_what_is_generated(self):
        g = torch.Generator().manual_seed(3)
        tokens, real = torch.randint(3, 300, (2, 24), generator=g), torch.ones(2, 24, dtype=torch.long)
        real[1, :9] = 0
        for device in DEVICES:
            for name, model, config, settings in kinds():
                if name in ("ModernBert", "Bert", "T5", "ViT"):
                    continue
                torch.manual_seed(1)
                config = config(**settings)
                try:
                    eager = made(model, config, "eager", torch.float32, device)
                except (ImportError, ValueError) as refused:
                    self.skipTest(str(refused))
                ours = made(model, config, "headroom", torch.float32, device, eager.state_dict())
                for cache in (None, "static"):
                    if OLD and (name, cache) == ("Gemma2", "static"):  # eager attention's own masks do not fit
                        continue
                    with self.subTest(model=name, cache=cache, device=device), ht.replace_sdpa() as seen:
                        asked = dict(input_ids=tokens.to(device), attention_mask=real.to(device), max_new_tokens=6, do_sample=False,
                                     eos_token_id=None, output_logits=True, return_dict_in_generate=True, **({} if OLD else {"disable_compile": True}),
                                     **({} if cache is None else {"cache_implementation": cache}))  # fmt: skip
                        want, got = eager.generate(**asked), ours.generate(**asked)
                        self.assertTrue(torch.equal(got.sequences, want.sequences))
                        for a, b in zip(got.logits, want.logits):
                            self.assertLess((a - b).abs().max().item(), 1e-4)
                        self.assertEqual((seen.served, dict(seen.left)), (12, {}), seen.explain())

    def twins(self, name, model, settings):
        """The same tiny model with eager attention and with ours."""
        config = getattr(transformers, name + "Config", None)
        if config is None or not hasattr(transformers, model):
            self.skipTest(f"transformers {transformers.__version__} has no {model}")
        model, config = getattr(transformers, model), config(**settings)
        torch.manual_seed(1)
        eager = made(model, config, "eager", torch.float32, "cpu")
        return eager, made(model, config, "headroom", torch.float32, "cpu", eager.state_dict())

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
    def test_a_prompt_in_two_parts_over_a_static_cache(self):
        """The cache adds to its own length while layers run: a mask that a layer asked for later showed rows the tokens behind them."""
        sizes = dict(vocab_size=300, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        tokens, holes = torch.randint(3, 300, (2, 12), generator=torch.Generator().manual_seed(3)), torch.ones(2, 12, dtype=torch.long)
        holes[0, 3] = 0
        llama = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
        for name, model, settings, asked in (
            ("Llama", "LlamaForCausalLM", llama, dict(attention_mask=holes)),
            ("Llama", "LlamaForCausalLM", llama, dict(output_attentions=True)),
            ("CodeGen", "CodeGenForCausalLM", dict(n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=64), {}),
            ("XGLM", "XGLMForCausalLM", dict(d_model=64, ffn_dim=128, num_layers=2, attention_heads=4), {}),
        ):  # fmt: skip
            with self.subTest(model=name, asked=list(asked)), torch.no_grad():
                logits = []
                for net in self.twins(name, model, {**sizes, **settings}):
                    cache = transformers.StaticCache(config=net.config, max_cache_len=20)
                    first = {n: value[:, :5] if value is holes else value for n, value in asked.items()}
                    logits.append([net(tokens[:, :5], past_key_values=cache, **first).logits, net(tokens[:, 5:], past_key_values=cache, **asked).logits])
                for a, b in zip(*logits):
                    self.assertLess((a - b).abs().max().item(), 1e-4)

    @unittest.skipIf(OLD, "its masks do not say what they are made from")
    def test_compiled_decoding_is_compiled_once(self):
        """Padding grows by each token, and a mask that compiled code makes of it was compiled for each of its lengths."""
        if not hasattr(transformers, "CompileConfig") or not hasattr(transformers.CompileConfig(), "_compile_all_devices"):
            self.skipTest(f"transformers {transformers.__version__} compiles nothing on a CPU")
        sizes = dict(vocab_size=300, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        llama = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
        tokens, real = torch.randint(3, 300, (2, 7), generator=torch.Generator().manual_seed(3)), torch.ones(2, 7, dtype=torch.long)
        for name, model, settings, masked, served in (
            ("Llama", "LlamaForCausalLM", llama, (0, slice(0, 3)), True),
            ("Llama", "LlamaForCausalLM", llama, (0, 3), False),
            ("XGLM", "XGLMForCausalLM", dict(d_model=64, ffn_dim=128, num_layers=1, attention_heads=4), (0, slice(0, 3)), False),
        ):  # fmt: skip
            eager, ours = self.twins(name, model, {**sizes, **settings})
            said = real.clone()
            said[masked] = 0
            asked = dict(input_ids=tokens, attention_mask=said, max_new_tokens=6, do_sample=False, eos_token_id=None)
            compiled = transformers.CompileConfig(fullgraph=True, dynamic=False, backend="eager")
            compiled._compile_all_devices = True
            torch._dynamo.reset()
            with self.subTest(model=name, masked=masked), torch._dynamo.config.patch(error_on_recompile=True), ht.replace_sdpa() as seen:
                got = ours.generate(**asked, cache_implementation="static", compile_config=compiled)
                self.assertTrue(torch.equal(got, eager.generate(**asked)))
                self.assertEqual(seen.compiled, 1 if served else 0, seen.explain())
        torch._dynamo.reset()

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
    def test_keys_that_a_mask_does_not_know_are_refused(self):
        """A model that adds keys to those that its mask was made for, as DeepSeek V4 does: rows saw the wrong ones."""
        importlib.import_module("transformers.masking_utils")
        said = models.mask(batch_size=1, q_length=5, kv_length=5, device=torch.device("cpu"), dtype=torch.float32)
        q, k = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 6, 16)
        with self.assertRaisesRegex(ValueError, "Linear has 6 keys and a mask of 5: .*attn_implementation='eager'"):
            models.attend(torch.nn.Linear(1, 1), q, k, k, said)

    def test_chunks_over_a_cache(self):
        eager, ours = self.twins("Llama4Text", "Llama4ForCausalLM", dict(
            vocab_size=300, hidden_size=64, intermediate_size=64, intermediate_size_mlp=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, num_local_experts=2, attention_chunk_size=16, layer_types=["chunked_attention", "full_attention"],
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        ))  # fmt: skip
        g = torch.Generator().manual_seed(3)
        tokens, real = torch.randint(3, 300, (2, 29), generator=g), torch.ones(2, 29, dtype=torch.long)
        real[1, :9] = 0
        for cache in (None, "static"):
            with self.subTest(cache=cache), ht.replace_sdpa() as seen:
                asked = dict(input_ids=tokens, attention_mask=real, max_new_tokens=6, do_sample=False, eos_token_id=None, output_logits=True,
                             return_dict_in_generate=True, disable_compile=True, **({} if cache is None else {"cache_implementation": cache}))  # fmt: skip
                try:
                    want = eager.generate(**asked)
                except TypeError as refused:  # transformers 5.17 makes no masks of chunks for generate
                    self.skipTest(f"eager attention fails too: {refused}")
                got = ours.generate(**asked)
                self.assertTrue(torch.equal(got.sequences, want.sequences))
                for a, b in zip(got.logits, want.logits):
                    self.assertLess((a - b).abs().max().item(), 1e-4)
                self.assertEqual((seen.served, dict(seen.left)), (12, {}), seen.explain())

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
