"""Forecasts from Python: dataclasses of the C interface's answers, from names, files, dicts and config objects."""

import json
import os
import tempfile
import unittest

import gpu_headroom as hr

LLAMA = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-5,
}  # fmt: skip


class ForecastTest(unittest.TestCase):
    def test_the_peak_and_who_holds_it(self):
        f = hr.forecast("small", batch=4, len=1024, precision="bf16", device="h200")
        self.assertEqual(f.params, 128625408)
        self.assertEqual(sum(c.at_peak_bytes for c in f.components), f.peak_bytes)
        self.assertEqual(max(m.live_bytes for m in f.timeline), f.peak_bytes)
        self.assertEqual(sum(f.at_peak_bytes.values()), f.peak_bytes)
        self.assertTrue(f.fits)
        self.assertGreater(f.ms_at_least, 0)
        self.assertTrue(f.ms_at_least < f.ms_low < f.ms < f.ms_high)
        counted = hr.forecast("mixtral-8x7b", batch=1, len=64, precision="bf16", device="h200")
        self.assertIsNone(counted.ms)
        self.assertIn("only counted", counted.ms_by)
        self.assertEqual(f.settings["keep"], "everything")
        less = hr.forecast("small", batch=4, len=1024, precision="bf16", device="h200", keep="input")
        self.assertLess(less.peak_bytes, f.peak_bytes)
        self.assertFalse(hr.forecast("8B", device="h200", memory_gib=10).fits)

    def test_a_model_is_a_name_a_file_a_dict_or_a_config(self):
        class Config:  # as transformers' are
            def to_dict(self):
                sampling = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "num_beams": 1, "length_penalty": 1.0, "diversity_penalty": 0.0}
                return {**LLAMA, **sampling, "dtype": object}  # version 4 says how it samples, too

        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "config.json")
            with open(file, "w") as out:
                json.dump(LLAMA, out)
            peaks = {hr.forecast(m, batch=2, len=64, device="h200").peak_bytes for m in (LLAMA, file, Config())}
        self.assertEqual(len(peaks), 1)

    def test_every_lever_is_an_option(self):
        asked = dict(batch=4, precision="bf16", device="h200")
        f = hr.forecast("small", **asked)
        half = hr.forecast("small", logits="half", **asked)
        self.assertLess(half.peak_bytes, f.peak_bytes)
        self.assertEqual(half.settings["logits"], "half")
        ranks = hr.forecast("small", ranks=4, shard="everything", **asked)
        self.assertLess(ranks.standing_bytes, f.standing_bytes)
        self.assertEqual((ranks.settings["ranks"], ranks.settings["shard"]), (4, "everything"))
        auto = hr.forecast("small", keep="auto", memory_gib=f.peak_bytes / 2**30, **asked)
        self.assertLess(auto.peak_bytes, f.peak_bytes)
        self.assertEqual(auto.settings["keep"], "auto")
        packed = hr.forecast("small", batch=4, documents=[700, 24, 300], precision="bf16", device="h200")
        self.assertEqual(packed.len, 1024)
        self.assertLess(packed.flops, f.flops)
        with self.assertRaisesRegex(TypeError, "forecast has no argument 'logit': say logits"):
            hr.forecast("small", device="h200", logit="half")
        for wrong, words in (
            ({"shard": "everything"}, "there is one rank"),
            ({"documents": [0]}, "have no token"),
            ({"documents": [5], "len": 8}, "leave len out"),
        ):
            with self.assertRaisesRegex(hr.Error, words):
                hr.forecast("small", device="h200", **wrong)

    def test_a_plan(self):
        few = dict(precision="bf16", attention="flash", masters="whole", gradients=["whole", "half"], update="after")
        p = hr.plan("small", batch=4, len=256, device="h200", keep=["everything", "input"], most=3, **few)
        self.assertTrue(p.fits)
        self.assertEqual(len(p.rows), 3)
        self.assertIs(p.best, p.rows[0])
        none = hr.plan("small", batch=1, len=64, device="h200", memory_bytes=1000, keep="input", **few)
        self.assertFalse(none.fits)
        self.assertIsNone(none.best)

    def test_pytorchs_memory(self):
        m = hr.memory_as_pytorch("small", batch=2, len=[128, 256], precision="bf16")
        less = hr.memory_as_pytorch("small", batch=2, len=[128, 256], precision="bf16", keep="input", adam="8bit", ranks=4, shard="everything")
        for one, other in zip(less.rows, m.rows):
            self.assertLess(one["train_peak_bytes"], other["train_peak_bytes"])
            self.assertGreaterEqual(one["reserved_bytes"], one["train_peak_bytes"])
        self.assertEqual(len(m.rows), 2)
        self.assertGreater(m.peak_bytes, m.rows[0]["train_peak_bytes"])
        self.assertTrue(m.components)

    def test_tables(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pandas is not installed"):
                hr.forecast("small", device="h200").to_pandas()
            return
        f = hr.forecast("small", device="h200")
        self.assertEqual(int(f.to_pandas()["at_peak_bytes"].sum()), f.peak_bytes)
        self.assertEqual(int(f.timeline_to_pandas()["live_bytes"].max()), f.peak_bytes)
        self.assertEqual(len(hr.plan("small", batch=1, device="h200", precision="bf16", keep="input", attention="flash", most=2).to_pandas()), 2)
        self.assertEqual(len(hr.memory_as_pytorch("small").to_pandas()), 1)

    def test_what_is_refused_says_why(self):
        def refuse(kind, words, *args, call=hr.forecast, **options):
            with self.assertRaisesRegex(kind, words):
                call(*args, **options)

        refuse(hr.Error, "there is no 'bf61'", precision="bf61")
        refuse(hr.Error, "batch is 0", batch=0)
        refuse(hr.Error, "whole number", batch=1.5)
        refuse(hr.Error, "h2000", device="h2000")
        refuse(TypeError, "model is a int", 3)
        refuse(TypeError, "forecast has no argument 'prescision': say precision", prescision="bf16")
        refuse(TypeError, "plan has no argument 'seq_len': say len", seq_len=4, call=hr.plan)
        refuse(TypeError, "memory_as_pytorch has no argument 'world_size': say ranks", world_size=4, call=hr.memory_as_pytorch)
        refuse(TypeError, "device is a list: the name of a GPU", device=["h200"])
        peaks = {hr.forecast("small", precision=p, device="h200").peak_bytes for p in ("bf16", "bfloat16")}
        self.assertEqual(len(peaks), 1)
        refuse(ValueError, "give one of them", memory_gib=1, memory_bytes=1)
        refuse(TypeError, "forecast", batch=object())
        for call in (hr.forecast, hr.plan, hr.memory_as_pytorch):
            for memory in (float("nan"), float("inf"), -float("inf"), 0, 0.0, -1, 2**32, 1e300):
                refuse(ValueError, "memory_gib is .*: a number above 0 and below 2.32, or None", memory_gib=memory, call=call)
            for memory in ("8", True, [8], 8j):
                refuse(TypeError, "memory_gib is .*: a number above 0", memory_gib=memory, call=call)
            refuse(hr.Error, "memory_bytes is 0, it must be at least 1", memory_bytes=0, call=call)
            refuse(hr.Error, "device is empty", device="", call=call)
            refuse(hr.Error, "len is 4611686018427387904, it must be below 2.62", len=2**62, call=call)
            refuse(hr.Error, "below 2.62", len=2**70, call=call)
            refuse(hr.Error, "len is", len=-(2**63), call=call)
        deep = {"model_type": "llama"}
        for _ in range(100_000):
            deep = {"model_type": deep}
        refuse(ValueError, "nested too deep", deep)
        nested = [[]]
        for _ in range(200):
            nested = [nested]
        refuse(hr.Error, "nested deeper than 100 levels", {"model_type": "llama", "layer_types": nested})
        around = {}
        around["model_type"] = around
        refuse(TypeError, "Circular", around)
        refuse(hr.Error, "CUDA allocator", device="cpu", call=hr.memory_as_pytorch)


if __name__ == "__main__":
    unittest.main()
