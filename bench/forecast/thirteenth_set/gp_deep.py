"""GPyTorch: a deep kernel, a network before an RBF kernel on 3000 points by conjugate gradients, then two outputs by a multitask kernel, predictive variances."""
import gpytorch
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(3000, 64, device="cuda"), torch.randn(3000, device="cuda")


class Deep(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.net = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 4))
        self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))
        self.scale = gpytorch.utils.grid.ScaleToBounds(-1.0, 1.0)

    def forward(self, x):
        z = self.scale(self.net(x))
        return gpytorch.distributions.MultivariateNormal(self.mean(z), self.kernel(z))


class Tasks(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.kernel = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.MaternKernel(nu=1.5), num_tasks=2, rank=1)

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean(x), self.kernel(x))


def fit(model, likelihood, y, steps):
    model.train(), likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -score(model(*model.train_inputs), y)
        loss.backward()
        optimizer.step()
    model.eval(), likelihood.eval()
    return loss.item()


likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
model = Deep(x, y, likelihood).cuda()
print(fit(model, likelihood, y, 5))
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    print(likelihood(model(torch.randn(1000, 64, device="cuda"))).variance.mean().item())
del model
few, both = x[:300, :4].contiguous(), torch.randn(300, 2, device="cuda")
likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2).cuda()
model = Tasks(few, both, likelihood).cuda()
print(fit(model, likelihood, both, 5))
