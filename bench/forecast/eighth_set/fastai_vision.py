"""fastai: a Learner on pictures, ResNet-34 with its own head, mixup, fp16, one cycle with frozen layers and one without; pictures are changed on the card."""
import numpy
import PIL.Image
import torch
from fastai.vision.all import CategoryBlock, DataBlock, ImageBlock, MixUp, Normalize, RandomSplitter, Resize, accuracy, aug_transforms, imagenet_stats, resnet34, vision_learner
if __name__ == "__main__":
    torch.manual_seed(0)
    pictures = [PIL.Image.fromarray(numpy.random.randint(0, 255, (150, 140, 3), dtype=numpy.uint8)) for _ in range(20)]
    block = DataBlock((ImageBlock, CategoryBlock), get_x=lambda i: numpy.array(pictures[i % 20]), get_y=lambda i: i % 7, splitter=RandomSplitter(0.2, seed=0), item_tfms=Resize(144),
                      batch_tfms=[*aug_transforms(size=128), Normalize.from_stats(*imagenet_stats)])
    dls = block.dataloaders(list(range(160)), bs=24, num_workers=0)
    learn = vision_learner(dls, resnet34, metrics=accuracy, pretrained=False, cbs=MixUp()).to_fp16()
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(1, 3e-3)
        learn.unfreeze()
        learn.fit_one_cycle(1, slice(1e-5, 1e-3))
    print(learn.validate())
