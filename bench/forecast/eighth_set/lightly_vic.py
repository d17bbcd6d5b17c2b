"""lightly: VICReg, then DINO with its heads and a teacher by momentum, as its examples have them; views by lightly's own transforms, trained by Lightning in fp16."""
import copy
import PIL.Image
import numpy
import pytorch_lightning
import torch
import torchvision
from lightly.loss import DINOLoss, VICRegLoss
from lightly.models.modules import DINOProjectionHead
from lightly.models.modules.heads import VICRegProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.transforms.dino_transform import DINOTransform
from lightly.transforms.vicreg_transform import VICRegTransform
class Pictures(torch.utils.data.Dataset):
    def __init__(self, transform):
        self.transform, self.made = transform, [PIL.Image.fromarray(numpy.random.randint(0, 255, (100, 100, 3), dtype=numpy.uint8)) for _ in range(8)]
    def __len__(self):
        return 96
    def __getitem__(self, i):
        return self.transform(self.made[i % 8]), 0, ""
class VICReg(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(*list(torchvision.models.resnet18().children())[:-1])
        self.head, self.loss = VICRegProjectionHead(512, 2048, 2048, num_layers=2), VICRegLoss()
    def training_step(self, batch, i):
        z0, z1 = (self.head(self.backbone(x).flatten(1)) for x in batch[0])
        return self.loss(z0, z1)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)
class DINO(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.student, self.student_head = torch.nn.Sequential(*list(torchvision.models.resnet18().children())[:-1]), DINOProjectionHead(512, 512, 64, 2048, freeze_last_layer=1)
        self.teacher, self.teacher_head = copy.deepcopy(self.student), DINOProjectionHead(512, 512, 64, 2048)
        deactivate_requires_grad(self.teacher)
        deactivate_requires_grad(self.teacher_head)
        self.loss = DINOLoss(output_dim=2048, warmup_teacher_temp_epochs=1)
    def training_step(self, batch, i):
        update_momentum(self.student, self.teacher, m=0.99)
        update_momentum(self.student_head, self.teacher_head, m=0.99)
        views = batch[0]
        t = [self.teacher_head(self.teacher(v).flatten(1)) for v in views[:2]]
        s = [self.student_head(self.student(v).flatten(1)) for v in views]
        return self.loss(t, s, epoch=self.current_epoch)
    def on_after_backward(self):
        self.student_head.cancel_last_layer_gradients(current_epoch=self.current_epoch)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
if __name__ == "__main__":
    torch.manual_seed(0)
    for model, transform in ((VICReg(), VICRegTransform(input_size=96)), (DINO(), DINOTransform(global_crop_size=96, local_crop_size=48))):
        loader = torch.utils.data.DataLoader(Pictures(transform), batch_size=32, drop_last=True, num_workers=0)
        pytorch_lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, precision="16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(model, loader)
