"""The peers of bench/peers/attention_gpu.py on a CPU, where PyTorch's are right and a package of FlashAttention's is played. Needs torch."""

import contextlib
import os
import pathlib
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import attention_peers  # noqa: E402

PACKAGE = """
from torch.nn.functional import scaled_dot_product_attention as sdpa
def flash_attn_func(q, k, v, causal=False):
    return sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal).transpose(1, 2), None
"""


TLX = """
from torch.nn.functional import scaled_dot_product_attention as sdpa
def flash_attn(q, k, v, causal=False):
    assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    return sdpa(q, k, v, is_causal=causal)
"""


@contextlib.contextmanager
def given(variable, module, source):
    """A package that stands in `module`.py of the folder that `variable` names."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, f"{module}.py").write_text(source)
        os.environ[variable] = folder
        try:
            yield
        finally:
            del os.environ[variable]
            sys.modules.pop(module, None)


class PeersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.t = {name: torch.randn(2, 48, 4, 32) for name in ("q", "k", "v", "d_o")}

    def results(self, name, causal, backward):
        peer = attention_peers.maker_of(name)(self.t, causal, backward)
        peer()
        return peer.results

    def test_peers_agree_in_our_layout(self):
        with given("HEADROOM_FA3", "flash_attn_interface", PACKAGE), given("HEADROOM_TLX", "tlx_flash_attn", TLX):
            for backward in (False, True):
                for causal in (False, True):
                    right = self.results("math", causal, backward)
                    self.assertEqual(set(right), {"dq", "dk", "dv"} if backward else {"o"})
                    for name in ("flash", "fa3", "tlx"):
                        for key, x in self.results(name, causal, backward).items():
                            torch.testing.assert_close(x, right[key], msg=f"{name} {key}")

    def test_tlx_has_one_key_head_to_a_query_head(self):
        self.t |= {name: self.t[name][:, :, :2] for name in "kv"}
        with given("HEADROOM_TLX", "tlx_flash_attn", TLX), self.assertRaisesRegex(RuntimeError, "no grouped heads"):
            self.results("tlx", False, False)

    def test_what_is_not_installed_says_so(self):
        with self.assertRaisesRegex(ImportError, "FlashAttention-4 is not installed: flash_attn.cute"):
            attention_peers.maker_of("fa4")
        for name, words in (("tlx", "TLX is not installed: triton.tlx.ops"), ("cudnn-frontend-ordered", "cuDNN's front end is not installed: cudnn")):
            with self.assertRaisesRegex(ImportError, words):
                attention_peers.maker_of(name)
        with given("HEADROOM_TLX", "another", ""), self.assertRaisesRegex(ImportError, "tlx_flash_attn cannot be imported"):
            attention_peers.maker_of("tlx")
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            os.environ["HEADROOM_FA3"] = file.name
            try:
                with self.assertRaises(OSError):
                    attention_peers.maker_of("fa3")
            finally:
                del os.environ["HEADROOM_FA3"]


if __name__ == "__main__":
    unittest.main()
