"""BoTorch: a loop of Bayesian optimization on the card, a Gaussian process of 400 points fitted by L-BFGS of SciPy, the next four points by qLogEI from Sobol starts."""
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
torch.manual_seed(0)
on = dict(device="cuda", dtype=torch.double)
x = torch.rand(400, 6, **on)
value = lambda x: -(x - 0.4).pow(2).sum(-1, keepdim=True) + 0.1 * torch.sin(20 * x).sum(-1, keepdim=True)
y = value(x)
for turn in range(2):
    gp = SingleTaskGP(x, y, input_transform=Normalize(6), outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp), optimizer_kwargs={"options": {"maxiter": 30}})
    new, _ = optimize_acqf(qLogExpectedImprovement(gp, best_f=y.max()), bounds=torch.tensor([[0.0] * 6, [1.0] * 6], **on), q=4, num_restarts=10, raw_samples=512, options={"maxiter": 20})
    x, y = torch.cat([x, new]), torch.cat([y, value(new)])
print(len(x))
