"""diffusers: a latent consistency model distilled from a U-Net: teacher with guidance, a target that follows by EMA, DDIM's steps, Huber's loss, bf16, then four steps."""
import copy
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, LCMScheduler, UNet2DConditionModel

torch.manual_seed(0)
sizes = dict(sample_size=32, in_channels=4, out_channels=4, cross_attention_dim=512, block_out_channels=(160, 320, 640), layers_per_block=2, attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
teacher = UNet2DConditionModel(**sizes).cuda().to(torch.bfloat16).requires_grad_(False).eval()
student = UNet2DConditionModel(**sizes, time_cond_proj_dim=256).cuda()
target = copy.deepcopy(student).requires_grad_(False)
alphas = DDPMScheduler(beta_schedule="scaled_linear").alphas_cumprod.cuda()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, foreach=True)


def embedded(w, dim=256):
    half = dim // 2
    angles = (w * 1000)[:, None] * torch.exp(torch.arange(half, device="cuda") * -(torch.log(torch.tensor(10000.0, device="cuda")) / (half - 1)))
    return torch.cat([angles.sin(), angles.cos()], 1)


def guessed(noise, x, at):
    a = alphas[at].view(-1, 1, 1, 1)
    return (x - (1 - a).sqrt() * noise) / a.sqrt()


for step in range(5):
    x, text, empty = torch.randn(12, 4, 32, 32, device="cuda"), torch.randn(12, 77, 512, device="cuda"), torch.zeros(12, 77, 512, device="cuda")
    index = torch.randint(1, 50, (12,), device="cuda")
    at, before = index * 20 - 1, (index * 20 - 21).clamp(min=0)
    noise, w = torch.randn_like(x), torch.rand(12, device="cuda") * 10 + 2
    a = alphas[at].view(-1, 1, 1, 1)
    noisy = a.sqrt() * x + (1 - a).sqrt() * noise
    with torch.autocast("cuda", dtype=torch.bfloat16):
        mine = guessed(student(noisy, at, text, timestep_cond=embedded(w)).sample.float(), noisy, at)
        with torch.no_grad():
            told = teacher(noisy.to(torch.bfloat16), at, text.to(torch.bfloat16)).sample.float()
            blind = teacher(noisy.to(torch.bfloat16), at, empty.to(torch.bfloat16)).sample.float()
            both = told + w.view(-1, 1, 1, 1) * (told - blind)
            b = alphas[before].view(-1, 1, 1, 1)
            earlier = b.sqrt() * guessed(both, noisy, at) + (1 - b).sqrt() * both
            wanted = guessed(target(earlier, before, text, timestep_cond=embedded(w)).sample.float(), earlier, before)
        loss = torch.mean(torch.sqrt((mine - wanted) ** 2 + 0.001 ** 2) - 0.001)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for p, q in zip(target.parameters(), student.parameters()):
            p.lerp_(q, 0.05)
scheduler = LCMScheduler(beta_schedule="scaled_linear")
scheduler.set_timesteps(4, device="cuda")
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    x = torch.randn(8, 4, 32, 32, device="cuda")
    for t in scheduler.timesteps:
        x = scheduler.step(target(x, t, text[:8], timestep_cond=embedded(w[:8])).sample.float(), t, x, return_dict=False)[0]
print(loss.item(), x.shape)
