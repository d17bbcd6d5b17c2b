"""open_clip's own trainer, as its command line starts it: made-up pictures, ViT-S-32-alt, bf16 autocast, features of two batches gathered before the loss, checkpointed."""
import tempfile
from open_clip_train.main import main
if __name__ == "__main__":
    main(["--dataset-type", "synthetic", "--train-num-samples", "256", "--model", "ViT-S-32-alt", "--batch-size", "32", "--accum-freq", "2", "--precision", "amp_bf16", "--epochs", "1", "--workers", "1", "--warmup", "2",
          "--lr", "5e-4", "--wd", "0.2", "--grad-clip-norm", "1.0", "--logs", tempfile.mkdtemp(), "--name", "try", "--save-frequency", "1", "--local-loss", "--grad-checkpointing"])
