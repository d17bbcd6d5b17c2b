"""gpytorch: a sparse variational Gaussian process with a deep kernel."""
import gpytorch
import torch
torch.manual_seed(0)
x, y = torch.rand(3000, 11).cuda(), torch.randn(3000).cuda()
class Sparse(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        q = gpytorch.variational.CholeskyVariationalDistribution(inducing.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.net = torch.nn.Sequential(torch.nn.Linear(11, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    def forward(self, x):
        h = self.net(x)
        return gpytorch.distributions.MultivariateNormal(self.mean_module(h), self.covar_module(h))
model, likelihood = Sparse(x[:250].clone()).cuda(), gpytorch.likelihoods.GaussianLikelihood().cuda()
mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=3000)
optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
for epoch in range(2):
    for xb, yb in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=500):
        optimizer.zero_grad()
        loss = -mll(model(xb), yb)
        loss.backward()
        optimizer.step()
print(loss.item())
