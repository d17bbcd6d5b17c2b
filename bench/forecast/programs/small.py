"""Small programs of many kinds, one a word: what a version of PyTorch has to run under a forecast. Nothing but torch is needed, of `llama` and `generate`
transformers and accelerate; `ddp`, `fsdp1` and `fsdp2` run under torchrun."""
import os
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

VOCAB, LEN = 32000, 512


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, layers=6, width=512):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(LEN, width)
        self.blocks, self.ln, self.head = nn.ModuleList(Block(width, 8) for _ in range(layers)), nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.wte.weight
        self.checkpoint, self.mask = False, None

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, self.mask, use_reentrant=False) if self.checkpoint else block(x, self.mask)
        return F.cross_entropy(self.head(self.ln(x)).view(-1, VOCAB), targets.view(-1))


def train(run, model, steps=6):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        ids, targets = torch.randint(VOCAB, (8, LEN)).cuda(), torch.randint(VOCAB, (8, LEN)).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(step, loss.item(), flush=True)


def gpt(**settings):
    model = GPT().cuda()
    for name, value in settings.items():
        setattr(model, name, value)
    train(model, model)


def checkpoint():
    gpt(checkpoint=True)


def mask():
    gpt(mask=torch.ones(LEN, LEN, dtype=torch.bool, device="cuda").tril())


def floatmask():
    gpt(mask=torch.zeros(8, 1, LEN, LEN, dtype=torch.bfloat16, device="cuda"))


def compiled(mode=None, steps=6):
    model = GPT(layers=2).cuda()
    train(torch.compile(model, mode=mode), model, steps)


def compiledgraphs():
    compiled("reduce-overhead", 8)


def scaler():
    model = GPT().cuda()
    optimizer, scale = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
    for step in range(6):
        ids, targets = torch.randint(VOCAB, (8, LEN)).cuda(), torch.randint(VOCAB, (8, LEN)).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = model(ids, targets)
        scale.scale(loss).backward()
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale.step(optimizer)
        scale.update()
        optimizer.zero_grad()
        print(step, loss.item(), scale.get_scale(), flush=True)


def memory():
    print(torch.cuda.get_device_properties(0), torch.version.cuda, torch.backends.cudnn.version())
    model = GPT().cuda()
    train(model, model)
    print(torch.cuda.memory_summary(abbreviated=True))
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    print(torch.cuda.memory_stats()["num_alloc_retries"], len(torch.cuda.memory_snapshot()))
    torch.cuda.memory._record_memory_history(max_entries=1000)
    train(model, model, 2)
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.memory._dump_snapshot(folder + "/snapshot.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)


def graphs():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    x, y = torch.randn(256, 1024, device="cuda"), torch.randn(256, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    for step in range(8):
        x.copy_(torch.randn(256, 1024))
        graph.replay()
        print(step, loss.item(), flush=True)


def loader():
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.utils.data.TensorDataset(torch.randint(VOCAB, (64, LEN)), torch.randint(VOCAB, (64, LEN)))
    for step, (ids, targets) in enumerate(torch.utils.data.DataLoader(tokens, batch_size=8, num_workers=2, pin_memory=True, shuffle=True)):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids.to("cuda", non_blocking=True), targets.to("cuda", non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item(), flush=True)


def conv():
    def layer(i, o, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
    layers = layer(3, 64, 2), layer(64, 64), layer(64, 128, 2), layer(128, 128), layer(128, 256, 2), layer(256, 256)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        images, labels = torch.randn(32, 3, 224, 224).cuda().contiguous(memory_format=torch.channels_last), torch.randint(1000, (32,)).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item(), flush=True)


def lstm():
    embed, layers, out = nn.Embedding(10000, 512).cuda(), nn.LSTM(512, 512, 2, batch_first=True).cuda(), nn.Linear(512, 10000).cuda()
    optimizer = torch.optim.Adam([*embed.parameters(), *layers.parameters(), *out.parameters()], lr=1e-3)
    for step in range(6):
        ids = torch.randint(10000, (16, 129)).cuda()
        loss = F.cross_entropy(out(layers(embed(ids[:, :-1]))[0]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item(), flush=True)


def ranks(shard):
    import torch.distributed as dist
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = run = GPT().cuda()
    if shard == "ddp":
        run = nn.parallel.DistributedDataParallel(model, device_ids=[local])
    elif shard == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        run = model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=local)
    else:
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:  # PyTorch 2.4 and 2.5
            from torch.distributed._composable.fsdp import fully_shard
        for module in (*model.blocks, model):
            fully_shard(module)
    train(run, model)
    dist.destroy_process_group()


def llama_of_transformers():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
                                        num_key_value_heads=4, max_position_embeddings=1024))


def llama():
    from transformers import Trainer, TrainingArguments

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return LEN

        def __getitem__(self, i):
            ids = torch.randint(VOCAB, (LEN,), generator=torch.Generator().manual_seed(i))
            return {"input_ids": ids, "labels": ids}
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=6, bf16=True, logging_steps=2, save_strategy="no",
                                     report_to=[], disable_tqdm=True)
        Trainer(model=llama_of_transformers(), args=settings, train_dataset=Tokens()).train()


def generate():
    model = llama_of_transformers().to(torch.bfloat16).cuda().eval()
    for turn in range(2):
        ids = torch.randint(3, 8000, (4, 128)).cuda()
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=turn == 1, pad_token_id=0)
        print(tuple(out.shape), flush=True)


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, LEN, LEN, device="cuda")
    qkv = [torch.randn(4, 8, LEN, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    attention, optimizer = torch.compile(flex_attention), torch.optim.SGD(qkv, lr=0.1)
    for step in range(4):
        attention(*qkv, block_mask=causal).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, flush=True)


torch.manual_seed(0)
PROGRAMS = [gpt, checkpoint, mask, floatmask, compiled, compiledgraphs, scaler, memory, graphs, loader, conv, lstm, llama, generate, flex]
wanted = sys.argv[1] if len(sys.argv) > 1 else "gpt"
if wanted in ("ddp", "fsdp1", "fsdp2"):
    ranks(wanted)
else:
    {p.__name__: p for p in PROGRAMS}[wanted]()
