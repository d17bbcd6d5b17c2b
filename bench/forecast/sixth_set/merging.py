"""Three fine-tuned models are merged on the card: safetensors loaded there, task vectors, TIES with the largest kept by kthvalue, spherical interpolation, DARE; the result answers and is saved."""
import os
import tempfile
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM
torch.manual_seed(0)
config = Qwen2Config(vocab_size=18001, hidden_size=512, intermediate_size=1500, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4)
folder = tempfile.mkdtemp()
base = Qwen2ForCausalLM(config)
for i in range(4):
    save_file({k: (v + 0.01 * i * torch.randn_like(v)).contiguous().to(torch.bfloat16) for k, v in base.state_dict().items() if "lm_head" not in k}, f"{folder}/{i}.safetensors")
model = base.cuda().to(torch.bfloat16).eval()
root, *tuned = (load_file(f"{folder}/{i}.safetensors", device="cuda") for i in range(4))
def ties(name):
    d = torch.stack([t[name].float() - root[name].float() for t in tuned])
    flat = d.flatten(1)
    limit = flat.abs().kthvalue(max(1, int(flat.shape[1] * 0.8)), dim=1, keepdim=True).values
    flat = flat * (flat.abs() >= limit)
    sign = flat.sum(0).sign()
    agree = (flat.sign() == sign) & (flat != 0)
    return root[name] + ((flat * agree).sum(0) / agree.sum(0).clamp(min=1)).view(root[name].shape).to(torch.bfloat16)
def slerp(name, t=0.4):
    a, b = (x[name].float().flatten() for x in tuned[:2])
    omega = torch.acos((a @ b / (a.norm() * b.norm()).clamp(min=1e-8)).clamp(-1, 1))
    s = omega.sin().clamp(min=1e-6)
    return (((1 - t) * omega).sin() / s * a + (t * omega).sin() / s * b).view(root[name].shape).to(torch.bfloat16)
def dare(name, p=0.7):
    d = sum((t[name] - root[name]) * (torch.rand_like(root[name]) > p) / (1 - p) for t in tuned)
    return root[name] + d / 3
with torch.no_grad():
    for how in (ties, slerp, dare):
        merged = {name: how(name) for name in root}
        model.load_state_dict(merged, strict=False)
        print(how.__name__, model(torch.randint(0, 18001, (4, 350), device="cuda")).logits.float().logsumexp(-1).mean().item())
save_file(merged, os.path.join(folder, "merged.safetensors"))
