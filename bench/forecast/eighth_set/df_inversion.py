"""diffusers' textual_inversion.py as it is: one new word with two vectors, bf16, two batches a step."""
import shutil
import glob
import os
from made_sd import folder, script
where = folder()
os.makedirs(where + "/pictures")
for f in glob.glob(where + "/data/train/*.png"):
    shutil.copy(f, where + "/pictures")
script("textual_inversion.py", "--pretrained_model_name_or_path", where + "/model", "--train_data_dir", where + "/pictures", "--learnable_property", "object", "--placeholder_token", "<thing>", "--initializer_token", "a", "--num_vectors", "2",
       "--resolution", "256", "--train_batch_size", "6", "--gradient_accumulation_steps", "2", "--max_train_steps", "5", "--learning_rate", "5e-4", "--mixed_precision", "bf16", "--repeats", "4", "--output_dir", where + "/out", "--save_steps", "100")
