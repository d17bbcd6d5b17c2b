"""A server's way: a CUDA graph for each batch size, all in one pool, replayed for what comes."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0), 6, enable_nested_tensor=False).to("cuda", torch.bfloat16).eval()
graphs, inputs, outputs, pool = {}, {}, {}, None
with torch.no_grad():
    for batch in (32, 16, 8, 4):
        inputs[batch] = torch.zeros(batch, 128, 768, device="cuda", dtype=torch.bfloat16)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                model(inputs[batch])
        torch.cuda.current_stream().wait_stream(side)
        graphs[batch] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[batch], pool=pool):
            outputs[batch] = model(inputs[batch])
        pool = pool or graphs[batch].pool()
    for n in (3, 30, 9, 16, 1):
        batch = min(b for b in graphs if b >= n)
        inputs[batch][:n].copy_(torch.randn(n, 128, 768, device="cuda", dtype=torch.bfloat16))
        graphs[batch].replay()
        outputs[batch][:n].float().cpu()
