"""skorch: a NeuralNetClassifier in a pipeline of scikit-learn, a grid search of three folds, early stopping, checkpoints, gradients clipped; then a regressor with its predictions."""
import tempfile
import numpy
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring, GradientNormClipping, LRScheduler
class Net(torch.nn.Module):
    def __init__(self, units=512, out=10):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(200, units), torch.nn.ReLU(), torch.nn.Dropout(0.4), torch.nn.Linear(units, units), torch.nn.BatchNorm1d(units), torch.nn.ReLU(), torch.nn.Linear(units, out))
    def forward(self, x):
        return self.layers(x)
torch.manual_seed(0)
r = numpy.random.default_rng(0)
x, y = r.normal(size=(6000, 200)).astype("float32"), r.integers(0, 10, 6000)
net = NeuralNetClassifier(Net, criterion=torch.nn.CrossEntropyLoss, max_epochs=2, batch_size=1024, lr=0.1, device="cuda", optimizer=torch.optim.SGD, optimizer__momentum=0.9, iterator_train__shuffle=True, verbose=0,
                          callbacks=[EarlyStopping(patience=5), GradientNormClipping(1.0), LRScheduler("CosineAnnealingLR", T_max=4), Checkpoint(dirname=tempfile.mkdtemp(), monitor="valid_acc_best")])
search = GridSearchCV(Pipeline([("scale", StandardScaler()), ("net", net)]), {"net__module__units": [512, 2048], "net__lr": [0.05, 0.1]}, cv=3, scoring="accuracy", refit=True)
search.fit(x, y)
reg = NeuralNetRegressor(Net, module__out=3, module__units=4096, max_epochs=2, batch_size=2048, device="cuda", optimizer=torch.optim.Adam, lr=1e-3, verbose=0)
reg.fit(x, r.normal(size=(6000, 3)).astype("float32"))
print(search.best_params_, reg.predict(x).shape)
