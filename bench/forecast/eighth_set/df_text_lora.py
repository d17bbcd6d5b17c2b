"""diffusers' train_text_to_image_lora.py as it is: rank 16, fp16, checkpointed, pictures drawn for a validation, a checkpoint on the way and weights at the end."""
from made_sd import folder, script
where = folder()
script("train_text_to_image_lora.py", "--pretrained_model_name_or_path", where + "/model", "--train_data_dir", where + "/data", "--resolution", "256", "--train_batch_size", "8", "--max_train_steps", "6", "--mixed_precision", "fp16",
       "--gradient_checkpointing", "--rank", "16", "--validation_prompt", "a thing", "--num_validation_images", "1", "--validation_epochs", "1", "--checkpointing_steps", "4", "--snr_gamma", "5.0", "--output_dir", where + "/out", "--random_flip",
       "--lr_warmup_steps", "2")
