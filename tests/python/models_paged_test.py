"""Continuous batching of transformers (generate_batch) with attn_implementation="headroom": a paged cache, and sequences that are packed."""

import sys
import unittest

from torch_cases import Base, torch

import gpu_headroom.torch as ht
from gpu_headroom.torch.models import attend

try:
    import transformers
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
except ImportError:
    print("skipped: needs transformers with ContinuousBatchingConfig")
    sys.exit(77)

SIZES = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16, "max_position_embeddings": 256, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
KINDS = {
    "Llama": {},
    "Mistral": {"sliding_window": 8},
    "Gemma2": {"sliding_window": 8, "attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 16},
    "GptOss": {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
}
ASKED = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=127, pad_token_id=0)


NAMES = ["headroom"]
if "paged|sdpa" in transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.valid_keys():  # names of continuous batching before 5.23
    NAMES.append("paged|headroom")


def made(kind, **other):
    """A model whose weights are large, so that what its attention is asked for decides its tokens."""
    config = getattr(transformers, kind + "Config")(**{**SIZES, **KINDS[kind], **other})
    torch.manual_seed(0)
    model = getattr(transformers, kind + "ForCausalLM")(config).eval()
    for p in model.parameters():
        if p.dim() > 1 or p.shape == (4,):  # sinks are [heads]
            torch.nn.init.normal_(p, std=0.3 if p.dim() > 1 else 2.0)
    return model


def prompts():
    g = torch.Generator().manual_seed(1)
    return [torch.randint(3, 127, (n,), generator=g).tolist() for n in (5, 17, 30, 2)]


@torch.no_grad()
def one_by_one(model):
    model.set_attn_implementation("eager")
    made = []
    for p in prompts():
        tokens = torch.tensor([p])
        made.append(model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=ASKED)[0, len(p) :].tolist())
    return made


def together(model, name):
    model.set_attn_implementation(name)
    sizes = ContinuousBatchingConfig(num_blocks=32, max_batch_tokens=48, block_size=16)
    made = model.generate_batch(inputs=prompts(), generation_config=ASKED, continuous_batching_config=sizes, progress_bar=False)
    return [one.generated_tokens for one in made.values()]


class PagedTest(Base):
    def test_generate_batch_gives_the_tokens_of_eager_attention(self):
        for kind in KINDS:
            model = made(kind)
            want = one_by_one(model)
            for name in NAMES:
                before = ht.explain()
                self.assertEqual(together(model, name), want, f"{kind} {name}")
                self.assertNotEqual(ht.explain(), before, "calls were counted as served")
                self.assertEqual(model.config._attn_implementation, name)

    def test_windows_caps_and_sinks_decide_these_tokens(self):  # else the test above would not see them
        for kind, other in (("Mistral", {"sliding_window": 200}), ("Gemma2", {"attn_logit_softcapping": None})):
            self.assertNotEqual(one_by_one(made(kind)), one_by_one(made(kind, **other)), kind)
        with_sinks, without = made("GptOss"), made("GptOss")
        for layer in without.model.layers:
            torch.nn.init.constant_(layer.self_attn.sinks, -100.0)
        self.assertNotEqual(one_by_one(with_sinks), one_by_one(without))

    def test_packed_sequences_are_not_left_to_attention_that_does_not_know_them(self):
        layer, (q, k, v) = made("Llama").model.layers[0].self_attn, (torch.randn(1, heads, 6, 16).double() for heads in (4, 2, 2))
        ends = torch.tensor([0, 2, 6], dtype=torch.int32)
        with self.assertRaisesRegex(ValueError, "LlamaAttention: q is torch.float64: .* packed sequences that come without a mask"):
            attend(layer, q, k, v, None, cu_seq_lens_q=ends)
        with self.assertRaisesRegex(ValueError, "chooses keys for each row"):
            attend(layer, q.float(), k.float(), v.float(), None, cu_seq_lens_q=ends, indices=torch.zeros(1, 6, 2, dtype=torch.int64))

    @unittest.skipIf(len(NAMES) == 1, "there is no such name")
    def test_a_forward_pass_without_a_paged_cache_is_refused_in_a_sentence(self):
        model = made("Llama")
        model.set_attn_implementation("paged|headroom")
        with self.assertRaisesRegex(ValueError, "LlamaAttention was called without a paged cache .* use attn_implementation='headroom'"):
            model(torch.tensor([[3, 4, 5]]))


if __name__ == "__main__":
    unittest.main()
