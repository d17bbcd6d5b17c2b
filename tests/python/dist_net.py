"""A small model with everything that wrappers of gpu_headroom.torch.dist must serve, and its training in one process, whose bits are the truth."""

import unittest

from dist_ranks import devices, import_what_steps_need, ranks_do, torch  # (which skips where there is no torch)
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Tied weights, a frozen one, a layer that only some inputs use, and one that none does."""

    def __init__(self, checkpoints=None):
        super().__init__()
        self.tokens, self.head = nn.Embedding(30, 12), nn.Linear(12, 30, bias=False)
        self.head.weight = self.tokens.weight
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 40), nn.Linear(40, 12)
        self.up.bias.requires_grad = False
        self.sometimes, self.never = nn.Linear(12, 12), nn.Linear(7, 5)
        self.register_buffer("scale", torch.rand(()))
        self.checkpoints = checkpoints

    def block(self, x):
        return self.down(torch.relu(self.up(self.norm(x)))) * (1 + self.scale)

    def forward(self, tokens, also=False):
        x = self.tokens(tokens)
        x = x + (self.block(x) if self.checkpoints is None else checkpoint(self.block, x, use_reentrant=self.checkpoints))
        return self.head(self.sometimes(x) if also else x)


def batches(step, ranks, device="cpu"):
    g = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, 30, (ranks, 4, 9), generator=g).to(device)


def loss_of(net, tokens, also):
    return nn.functional.cross_entropy(net(tokens[:, :-1], also).flatten(0, 1).float(), tokens[:, 1:].flatten())


def alone(ranks, device, also=lambda step, rank: False, **optimizer):
    """One process with the ranks' micro-batches in order."""
    torch.manual_seed(0)
    net = Net().to(device)
    adam = torch.optim.AdamW(net.parameters(), **optimizer)
    for step in range(3):
        adam.zero_grad()
        for rank, tokens in enumerate(batches(step, ranks, device)):
            loss_of(net, tokens, also(step, rank)).backward()
        number = torch.tensor(float(ranks), device=device)  # by a tensor: by a number torch multiplies with its inverse on a GPU
        for p in net.parameters():
            p.grad = None if p.grad is None else p.grad / number
        adam.step()
    return net


def same(got, want):
    """The names of what differs in any bit."""
    return [name for name, w in want.items() if got[name].dtype != w.dtype or not torch.equal(got[name], w)]


def differs_from_alone(comm, device, make, also=lambda step, rank: False):
    """make(comm, device) → (what to call, its optimizer, what names every whole parameter): the names whose bits are not those of alone()."""
    want = alone(comm.ranks, device, lr=1e-2, also=also).state_dict()
    torch.manual_seed(comm.rank)  # rank 0's values count
    call, optimizer, whole = make(comm, device)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(call, batches(step, comm.ranks, device)[comm.rank], also(step, comm.rank)).backward()
        optimizer.step()
    return same({**whole()}, {k: v for k, v in want.items() if k != "scale"})


class SameBits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import_what_steps_need()

    def same_bits(self, make, **more):
        """On three ranks and every kind of device, differs_from_alone() names nothing."""

        def body(comm):
            return [f"{name} on {device}" for device in devices() for name in differs_from_alone(comm, device, make, **more)]

        self.assertEqual(ranks_do(3, body), [[]] * 3)
