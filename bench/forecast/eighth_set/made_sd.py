"""A small Stable Diffusion with random weights and pictures with captions, in a folder; `script` runs one of diffusers' examples (a folder of them is named by SCRIPTS) with such arguments. No program itself."""
import json
import os
import runpy
import sys
import tempfile
import numpy
import PIL.Image
import torch
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer


def folder():
    torch.manual_seed(0)
    where = tempfile.mkdtemp()
    letters = [chr(c) for c in range(33, 127)]
    words = {w: i for i, w in enumerate([*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"])}
    os.makedirs(where + "/words")
    with open(where + "/words/vocab.json", "w") as f:
        json.dump(words, f)
    with open(where + "/words/merges.txt", "w") as f:
        f.write("#version: 0.2\n")
    tokenizer = CLIPTokenizer.from_pretrained(where + "/words", model_max_length=77)
    unet = UNet2DConditionModel(sample_size=32, block_out_channels=(96, 192, 384), layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=384, attention_head_dim=8)
    vae = AutoencoderKL(block_out_channels=(32, 64, 64, 64), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=4, sample_size=256)
    text = CLIPTextModel(CLIPTextConfig(vocab_size=len(tokenizer), hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=6, bos_token_id=len(words) - 2, eos_token_id=len(words) - 1))
    StableDiffusionPipeline(vae=vae, text_encoder=text, tokenizer=tokenizer, unet=unet, scheduler=DDPMScheduler(), safety_checker=None, feature_extractor=None, requires_safety_checker=False).save_pretrained(where + "/model")
    os.makedirs(where + "/data/train")
    with open(where + "/data/train/metadata.jsonl", "w") as f:
        for i in range(24):
            PIL.Image.fromarray(numpy.random.randint(0, 255, (256, 256, 3), dtype=numpy.uint8)).save(f"{where}/data/train/{i}.png")
            f.write(json.dumps({"file_name": f"{i}.png", "text": f"a picture of thing {i}"}) + "\n")
    return where


def script(name, *arguments):
    path = os.path.join(os.environ["SCRIPTS"], name)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.environ["SCRIPTS"])
    runpy.run_path(path, run_name="__main__")
