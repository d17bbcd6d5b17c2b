"""diffusers' train_unconditional.py as it is: a U-Net by its own configuration at 64 x 64, averaged weights, pictures drawn after each epoch, a pipeline saved."""
import glob
import os
from made_sd import folder, script
where = folder()
os.remove(where + "/data/train/metadata.jsonl")
script("train_unconditional.py", "--train_data_dir", where + "/data", "--resolution", "64", "--train_batch_size", "6", "--eval_batch_size", "8", "--num_epochs", "2", "--use_ema", "--mixed_precision", "bf16", "--ddpm_num_inference_steps", "4",
       "--save_images_epochs", "1", "--save_model_epochs", "2", "--output_dir", where + "/out", "--lr_warmup_steps", "2", "--dataloader_num_workers", "0", "--logger", "tensorboard")
