"""pytorch-metric-learning: a miner of semihard triplets, a memory of embeddings over batches, an ArcFace loss with an optimizer of its own."""
import torch
import torchvision
from pytorch_metric_learning import distances, losses, miners, reducers, testers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
torch.manual_seed(0)
trunk = torchvision.models.mobilenet_v3_small()
trunk.classifier = torch.nn.Linear(576, 256)
trunk = trunk.cuda()
distance = distances.CosineSimilarity()
triplet = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
memory = losses.CrossBatchMemory(losses.NTXentLoss(temperature=0.1), embedding_size=256, memory_size=1024)
arc = losses.SubCenterArcFaceLoss(num_classes=500, embedding_size=256).cuda()
miner = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
optimizer, of_loss = torch.optim.Adam(trunk.parameters(), 1e-4), torch.optim.SGD(arc.parameters(), lr=0.01)
for step in range(6):
    x, y = torch.randn(64, 3, 128, 128).cuda(), torch.randint(0, 16, (64,)).cuda()
    e = trunk(x)
    loss = triplet(e, y, miner(e, y)) + memory(e, y) + arc(e, y)
    optimizer.zero_grad()
    of_loss.zero_grad()
    loss.backward()
    optimizer.step()
    of_loss.step()
print(loss.item())
