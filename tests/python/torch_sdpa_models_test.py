"""replace_sdpa around whole modules and models: torch's layers, and models of transformers."""

import itertools
import unittest

from torch_cases import DEVICES, Base, torch

import gpu_headroom as hr
import gpu_headroom.torch as ht


class ModelsTest(Base):
    def test_a_module_of_torchs(self):
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        x = torch.randn(2, 10, 64, requires_grad=True)
        want = layer(x)
        with ht.replace_sdpa() as seen:
            self.near(layer(x), want, torch.float32)
        self.assertGreater(seen.served, 0, seen.explain())

    def test_models_of_transformers(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=128)
        for device, (config, model) in itertools.product(DEVICES, (
            (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
            (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        )):
            with self.subTest(model=model.__name__, device=device):
                torch.manual_seed(0)
                try:
                    net = model(config(**sizes, head_dim=16, attn_implementation="sdpa")).to(device)
                except ImportError as needs:
                    self.skipTest(" ".join(str(needs).split()))
                tokens = torch.randint(0, 300, (2, 50), device=device)

                def step():
                    net.zero_grad()
                    loss = net(tokens, labels=tokens).loss
                    loss.backward()
                    return loss.detach(), [p.grad.clone() for p in net.parameters()]

                loss, gradients = step()
                with ht.replace_sdpa() as seen:
                    ours, our_gradients = step()
                self.assertEqual((seen.served, sum(seen.left.values())), (2, 0), seen.explain())
                self.near(ours, loss, torch.float32)
                for g, w in zip(our_gradients, gradients):
                    self.near(g, w, torch.float32)
                f = hr.forecast(net.config, batch=2, len=50, device="h200")
                self.assertEqual(f.params, sum(p.numel() for p in net.parameters()))


if __name__ == "__main__":
    unittest.main()
