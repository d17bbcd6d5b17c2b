"""pytorch-tabnet: TabNetClassifier.fit with ghost batch norm, sparse masks, pretraining that hides features first, an evaluation each round."""
import numpy
import torch
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier
r = numpy.random.default_rng(0)
x, y = r.normal(size=(12000, 120)).astype("float32"), r.integers(0, 8, 12000)
first = TabNetPretrainer(n_d=64, n_a=64, n_steps=4, optimizer_params={"lr": 2e-2}, verbose=0, device_name="cuda", seed=0)
first.fit(x[:9000], eval_set=[x[9000:]], max_epochs=2, batch_size=2048, virtual_batch_size=256, num_workers=0, pretraining_ratio=0.5)
model = TabNetClassifier(n_d=64, n_a=64, n_steps=4, gamma=1.5, n_independent=2, n_shared=2, lambda_sparse=1e-4, mask_type="entmax", optimizer_fn=torch.optim.Adam, optimizer_params={"lr": 2e-2}, scheduler_fn=torch.optim.lr_scheduler.StepLR,
                         scheduler_params={"step_size": 2, "gamma": 0.9}, verbose=0, device_name="cuda", seed=0)
model.fit(x[:9000], y[:9000], eval_set=[(x[9000:], y[9000:])], eval_metric=["accuracy"], max_epochs=3, batch_size=2048, virtual_batch_size=256, num_workers=0, from_unsupervised=first, patience=10)
print(model.predict(x[9000:]).shape)
