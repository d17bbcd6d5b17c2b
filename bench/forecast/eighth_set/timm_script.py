"""timm's train.py as it is (the folder of SCRIPTS has it): MobileNetV4 with RandAugment, mixup, cutmix, random erasing, averaged weights, layer decay, channels last, a scaler."""
import os
import runpy
import sys
import tempfile
import numpy
import PIL.Image
sys.path.insert(0, os.environ.get("TUNE", ""))  # a timm as new as the script
if __name__ == "__main__":
    where = tempfile.mkdtemp()
    for part, n in (("train", 48), ("val", 16)):
        for c in range(3):
            os.makedirs(f"{where}/{part}/c{c}")
            for i in range(n):
                PIL.Image.fromarray(numpy.random.randint(0, 255, (180, 170, 3), dtype=numpy.uint8)).save(f"{where}/{part}/c{c}/{i}.png")
    path = os.path.join(os.environ["SCRIPTS"], "timm_train.py")
    sys.argv = [path, where, "--model", "mobilenetv4_conv_small", "--num-classes", "3", "-b", "24", "--epochs", "1", "--warmup-epochs", "0", "--sched", "cosine", "--opt", "adamw", "--lr", "1e-3", "--aa", "rand-m9-mstd0.5", "--mixup", "0.8", "--cutmix", "1.0",
                "--reprob", "0.25", "--model-ema", "--amp", "--channels-last", "--layer-decay", "0.75", "--clip-grad", "1.0", "-j", "1", "--output", where + "/out", "--img-size", "160", "--grad-accum-steps", "2", "--drop-path", "0.05"]
    runpy.run_path(path, run_name="__main__")
