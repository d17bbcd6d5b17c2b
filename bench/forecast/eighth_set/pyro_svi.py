"""Pyro: SVI of an amortised topic model with an encoder and ClippedAdam; then a guide of all weights of a small network (AutoNormal), four particles."""
import pyro
import pyro.distributions as dist
import torch
import torch.nn as nn
from pyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample
pyro.set_rng_seed(0)
class Topics(nn.Module):
    def __init__(self, words=5000, topics=50, hidden=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(words, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus(), nn.Dropout(0.2), nn.Linear(hidden, 2 * topics))
        self.decoder = nn.Sequential(nn.Dropout(0.2), nn.Linear(topics, words, bias=False), nn.BatchNorm1d(words, affine=False), nn.Softmax(-1))
        self.topics = topics
    def model(self, docs):
        pyro.module("decoder", self.decoder)
        with pyro.plate("documents", docs.shape[0]):
            z = pyro.sample("z", dist.Normal(docs.new_zeros(docs.shape[0], self.topics), 1.0).to_event(1))
            pyro.sample("obs", dist.Multinomial(total_count=int(docs.sum(-1).max()), probs=self.decoder(z.softmax(-1))), obs=docs)
    def guide(self, docs):
        pyro.module("encoder", self.encoder)
        with pyro.plate("documents", docs.shape[0]):
            loc, scale = self.encoder(docs).chunk(2, -1)
            pyro.sample("z", dist.Normal(loc, (0.5 * scale).exp()).to_event(1))
topics = Topics().cuda()
svi = SVI(topics.model, topics.guide, pyro.optim.ClippedAdam({"lr": 1e-3}), loss=TraceMeanField_ELBO())
for step in range(6):
    loss = svi.step(torch.randint(0, 3, (512, 5000), device="cuda").float())
pyro.clear_param_store()
class Net(PyroModule):
    def __init__(self):
        super().__init__()
        self.a, self.b = PyroModule[nn.Linear](200, 800), PyroModule[nn.Linear](800, 1)
        for layer in (self.a, self.b):
            layer.weight = PyroSample(dist.Normal(torch.zeros((), device="cuda"), 1.0).expand(layer.weight.shape).to_event(2))
            layer.bias = PyroSample(dist.Normal(torch.zeros((), device="cuda"), 1.0).expand(layer.bias.shape).to_event(1))
    def forward(self, x, y=None):
        mean = self.b(self.a(x).relu()).squeeze(-1)
        with pyro.plate("rows", x.shape[0]):
            return pyro.sample("obs", dist.Normal(mean, 0.1), obs=y)
net = Net().cuda()
svi = SVI(net, AutoNormal(net, init_scale=0.01), pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO(num_particles=4, vectorize_particles=False))
for step in range(5):
    loss = svi.step(torch.randn(4096, 200, device="cuda"), torch.randn(4096, device="cuda"))
print(loss)
