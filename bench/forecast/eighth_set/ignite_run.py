"""ignite: create_supervised_trainer with gradient accumulation and a scaler, evaluators with its metrics, a running average, a finder of learning rates before."""
import torch
import torchvision
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EMAHandler, FastaiLRFinder, PiecewiseLinear, TerminateOnNan
from ignite.metrics import Accuracy, ConfusionMatrix, Loss, RunningAverage, TopKCategoricalAccuracy
torch.manual_seed(0)
rows = torch.utils.data.TensorDataset(torch.randn(240, 3, 160, 160), torch.randint(0, 100, (240,)))
loader = torch.utils.data.DataLoader(rows, batch_size=24, shuffle=True)
model = torchvision.models.regnet_y_400mf(num_classes=100).cuda()
optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True), torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion, device="cuda", amp_mode="amp", scaler=True, gradient_accumulation_steps=2)
evaluator = create_supervised_evaluator(model, metrics={"right": Accuracy(), "loss": Loss(criterion), "top": TopKCategoricalAccuracy(5), "matrix": ConfusionMatrix(100)}, device="cuda", amp_mode="amp")
RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
finder = FastaiLRFinder()
with finder.attach(trainer, {"model": model, "optimizer": optimizer}, num_iter=6, end_lr=1.0, diverge_th=1e9) as finding:
    finding.run(loader, max_epochs=1)
trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.0), (6, 0.1), (20, 0.0)]))
EMAHandler(model, momentum=0.01).attach(trainer, name="ema", event=Events.ITERATION_COMPLETED)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(loader))
trainer.run(loader, max_epochs=2)
print(evaluator.state.metrics["loss"])
