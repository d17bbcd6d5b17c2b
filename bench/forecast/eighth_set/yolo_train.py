"""ultralytics: YOLO.train on made-up pictures and boxes in a folder, from its smallest YAML, with mosaic, an exponential average and a validation at the end."""
import os
import tempfile
import numpy
import PIL.Image
if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    os.environ["YOLO_CONFIG_DIR"] = folder
    from ultralytics import YOLO
    from ultralytics.engine.trainer import BaseTrainer
    BaseTrainer.read_results_csv = lambda self: {}  # polars is not there
    r = numpy.random.default_rng(0)
    for part, n in (("train", 48), ("val", 8)):
        os.makedirs(f"{folder}/images/{part}")
        os.makedirs(f"{folder}/labels/{part}")
        for i in range(n):
            PIL.Image.fromarray(r.integers(0, 255, (320, 320, 3), dtype=numpy.uint8)).save(f"{folder}/images/{part}/{i}.png")
            with open(f"{folder}/labels/{part}/{i}.txt", "w") as f:
                for _ in range(6):
                    x, y, w, h = r.uniform(0.3, 0.7), r.uniform(0.3, 0.7), r.uniform(0.1, 0.5), r.uniform(0.1, 0.5)
                    f.write(f"{r.integers(0, 5)} {x:.4f} {y:.4f} {w:.4f} {h:.4f}\n")
    with open(f"{folder}/data.yaml", "w") as f:
        f.write(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [a, b, c, d, e]\n")
    YOLO("yolo11n.yaml").train(data=f"{folder}/data.yaml", epochs=2, imgsz=320, batch=16, device=0, workers=0, project=folder, name="run", plots=False, amp=False, pretrained=False, verbose=False, optimizer="AdamW", lr0=1e-3, close_mosaic=1)
