"""Decision Transformer: offline trajectories cut from pickled arrays, returns to go, a loss where the mask says so, then rolled out step by step on a toy world."""
import pickle
import tempfile
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import DecisionTransformerConfig, DecisionTransformerModel

torch.manual_seed(0)
rng = np.random.default_rng(0)
with tempfile.NamedTemporaryFile(suffix=".pkl") as f:
    pickle.dump([{"s": rng.standard_normal((n, 64), dtype=np.float32), "a": rng.standard_normal((n, 12), dtype=np.float32), "r": rng.random(n, dtype=np.float32)} for n in rng.integers(50, 400, 100)], open(f.name, "wb"))
    paths = pickle.load(open(f.name, "rb"))


class Pieces(Dataset):
    def __init__(self, length=60):
        self.length = length

    def __len__(self):
        return 4000

    def __getitem__(self, k):
        p = paths[k % len(paths)]
        at = int(rng.integers(0, len(p["r"])))
        s, a, g = p["s"][at:at + self.length], p["a"][at:at + self.length], np.cumsum(p["r"][::-1])[::-1][at:at + self.length].copy()
        pad = self.length - len(s)
        left = lambda x: np.concatenate([np.zeros((pad, *x.shape[1:]), np.float32), x])
        return left(s), left(a), left(g)[:, None] / 100, np.concatenate([np.zeros(pad, np.int64), np.arange(at, at + len(s))]), np.concatenate([np.zeros(pad, np.int64), np.ones(len(s), np.int64)])


config = DecisionTransformerConfig(state_dim=64, act_dim=12, hidden_size=512, n_layer=6, n_head=8, max_ep_len=600, n_positions=256)
model = DecisionTransformerModel(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
for step, batch in enumerate(DataLoader(Pieces(), batch_size=96, num_workers=0)):
    s, a, g, t, mask = (x.cuda() for x in batch)
    out = model(states=s, actions=a, rewards=None, returns_to_go=g, timesteps=t, attention_mask=mask)
    loss = (out.action_preds - a)[mask > 0].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    if step == 5:
        break
model.eval()
world = torch.randn(12, 64, device="cuda") * 0.1
s, a, g, t = torch.randn(64, 1, 64, device="cuda"), torch.zeros(64, 0, 12, device="cuda"), torch.ones(64, 1, 1, device="cuda"), torch.zeros(64, 1, dtype=torch.long, device="cuda")
with torch.no_grad():
    for k in range(40):
        a = torch.cat([a, torch.zeros(64, 1, 12, device="cuda")], 1)
        a[:, -1] = model(states=s[:, -20:], actions=a[:, -20:], returns_to_go=g[:, -20:], timesteps=t[:, -20:], rewards=None).action_preds[:, -1]
        after = 0.95 * s[:, -1] + a[:, -1] @ world
        s, g, t = torch.cat([s, after[:, None]], 1), torch.cat([g, g[:, -1:] - after.mean(1)[:, None, None].clamp(0, 1) / 100], 1), torch.cat([t, t[:, -1:] + 1], 1)
print(loss.item(), s.abs().mean().item())
