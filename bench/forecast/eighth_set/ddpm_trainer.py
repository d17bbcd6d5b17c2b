"""denoising-diffusion-pytorch's Trainer, with a folder of made-up pictures: accelerate in fp16, two batches a step, a copy of averaged weights, pictures drawn by DDIM on the way."""
import os
import tempfile
import numpy
import torch
from PIL import Image
from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet
if __name__ == "__main__":
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    os.makedirs(folder + "/in")
    for i in range(120):
        Image.fromarray(numpy.random.randint(0, 255, (72, 80, 3), dtype=numpy.uint8)).save(f"{folder}/in/{i}.png")
    model = Unet(dim=64, dim_mults=(1, 2, 4), flash_attn=False)
    diffusion = GaussianDiffusion(model, image_size=64, timesteps=1000, sampling_timesteps=6, objective="pred_v")
    trainer = Trainer(diffusion, folder + "/in", train_batch_size=12, train_lr=8e-5, train_num_steps=8, gradient_accumulate_every=2, ema_decay=0.995, ema_update_every=2, amp=True, calculate_fid=False, num_samples=9,
                      save_and_sample_every=4, results_folder=folder + "/out")
    trainer.train()
