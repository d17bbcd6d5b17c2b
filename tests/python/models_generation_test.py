"""attn_implementation="headroom" where models generate: dynamic and static caches, chunks, decoding that is compiled. Against eager attention."""

import unittest

from model_cases import DEVICES, OLD, Base, kinds, made, torch, transformers

import gpu_headroom.torch as ht


class GenerationTest(Base):
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
    def test_an_encoders_padding_that_is_cut(self):
        """generate() cuts an encoder's padding to the first chunk of the decoder's prompt: its one column is read for every key, as sdpa reads it."""
        settings = dict(vocab_size=300, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2)
        eager, ours = self.twins("T5", "T5ForConditionalGeneration", settings)
        if not hasattr(eager.generation_config, "prefill_chunk_size"):
            self.skipTest(f"transformers {transformers.__version__} takes a prompt at once")
        tokens, real = torch.randint(3, 300, (2, 12), generator=torch.Generator().manual_seed(3)), torch.ones(2, 12, dtype=torch.long)
        real[1, :4] = 0
        asked = dict(input_ids=tokens, attention_mask=real, max_new_tokens=6, do_sample=False, eos_token_id=None, prefill_chunk_size=3, disable_compile=True)
        eager.set_attn_implementation("sdpa")
        self.assertTrue(torch.equal(ours.generate(**asked), eager.generate(**asked)))

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
            try:
                want = eager.generate(**asked, cache_implementation="static", compile_config=compiled)
            except torch._dynamo.exc.Unsupported as refused:  # XGLM of transformers 5.17 chooses by a tensor's value
                with self.subTest(model=name):
                    self.skipTest(f"cannot be compiled with eager attention either: {str(refused).splitlines()[0]}")
                continue
            torch._dynamo.reset()
            with self.subTest(model=name, masked=masked), torch._dynamo.config.patch(error_on_recompile=True), ht.replace_sdpa() as seen:
                got = ours.generate(**asked, cache_implementation="static", compile_config=compiled)
                self.assertTrue(torch.equal(got, want))
                self.assertEqual(seen.compiled, 1 if served else 0, seen.explain())
        torch._dynamo.reset()

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


if __name__ == "__main__":
    unittest.main()
