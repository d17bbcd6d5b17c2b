"""diffusers' train_controlnet.py as it is: a ControlNet made from the U-Net, AdamW in 8 bits by bitsandbytes, gradients set to none, a picture for the validation."""
import glob
import json
import os
from made_sd import folder, script
where = folder()
with open(where + "/data/train/metadata.jsonl", "w") as f:
    for i in range(24):
        f.write(json.dumps({"image_file_name": f"{i}.png", "guide_file_name": f"{23 - i}.png", "text": f"a picture of thing {i}"}) + "\n")
script("train_controlnet.py", "--pretrained_model_name_or_path", where + "/model", "--train_data_dir", where + "/data", "--image_column", "image", "--conditioning_image_column", "guide", "--caption_column", "text", "--resolution", "256",
       "--train_batch_size", "4", "--max_train_steps", "5", "--use_8bit_adam", "--set_grads_to_none", "--validation_prompt", "a thing", "--validation_image", where + "/data/train/0.png", "--num_validation_images", "1", "--validation_steps", "3",
       "--mixed_precision", "fp16", "--output_dir", where + "/out", "--report_to", "tensorboard")
