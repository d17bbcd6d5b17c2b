"""Opacus: differential privacy, per-sample gradients by hooks on a network whose batch norms become group norms, Poisson batches in small memory (BatchMemoryManager), then ghost clipping."""
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.validators import ModuleValidator
import torch.nn as nn
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(0, 10, (512,)))
for mode in ("hooks", "ghost"):
    conv = lambda a, b, s: nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.BatchNorm2d(b), nn.ReLU())
    model = ModuleValidator.fix(nn.Sequential(conv(3, 32, 1), conv(32, 64, 2), conv(64, 64, 1), conv(64, 128, 2), conv(128, 128, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000), nn.ReLU(), nn.Linear(1000, 10))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = torch.utils.data.DataLoader(data, batch_size=128)
    engine, criterion = PrivacyEngine(secure_mode=False), torch.nn.CrossEntropyLoss()
    made = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0, criterion=criterion, grad_sample_mode=mode)
    model, optimizer, *rest, loader = made
    criterion = rest[0] if rest else criterion
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=32, optimizer=optimizer) as small:
        for i, (x, y) in enumerate(small):
            optimizer.zero_grad()
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            if i == 9: break
    print(loss.item(), engine.get_epsilon(1e-5))
    del model, optimizer, made
