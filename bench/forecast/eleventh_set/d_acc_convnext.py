"""accelerate launch on two cards: ConvNeXt of torchvision in fp16, synchronised batches, accumulated, clipped, state saved and loaded, metrics gathered."""
# accelerate launch --multi_gpu --num_processes 2
import os
import tempfile
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import convnext_tiny

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2, kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])
set_seed(0)
model = convnext_tiny(num_classes=40)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
data = TensorDataset(torch.rand(160, 3, 192, 192), torch.randint(0, 40, (160,)))
model, optimizer, loader, tests, schedule = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=20), torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=40))
folder = os.path.join(tempfile.gettempdir(), "convnext_" + os.environ["MASTER_PORT"])
for epoch in range(2):
    model.train()
    for pictures, labels in loader:
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = torch.nn.functional.cross_entropy(model(pictures), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    found = []
    with torch.no_grad():
        for pictures, labels in tests:
            found.append(accelerator.gather_for_metrics((model(pictures).argmax(1), labels)))
    accelerator.print(epoch, loss.item(), sum((a == b).sum().item() for a, b in found))
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    accelerator.load_state(folder)
accelerator.end_training()
