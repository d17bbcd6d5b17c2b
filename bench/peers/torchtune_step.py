"""The step of torchtune's recipes for one GPU (full_finetune_single_device, lora_finetune_single_device), made of torchtune's own parts with
packed rows. For a forecast, so that docs/memory-as-pytorch-checks.md has a second witness beside published peaks:

    python3 -m venv tune && tune/bin/pip install torch==2.7.1 torchao==0.11.0 torchtune==0.6.1 bitsandbytes numpy
    headroom forecast --device rtx4090 -- tune/bin/python bench/peers/torchtune_step.py --way full --compile --keep
"""

import argparse

import torch
from torchtune import training
from torchtune.models import llama3_1, llama3_2
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params


def model_of(a):
    family, size = (llama3_1, "llama3_1_8b") if a.model == "8b" else (llama3_2, "llama3_2_3b")
    if a.way == "full":
        return getattr(family, size)()
    attention = ["q_proj", "v_proj", "output_proj"] if a.way == "lora" else ["q_proj", "k_proj", "v_proj", "output_proj"]
    make = getattr(family, ("qlora_" if a.way == "qlora" else "lora_") + size)
    model = make(lora_attn_modules=attention, apply_lora_to_mlp=True, lora_rank=8, lora_alpha=16)
    set_trainable_params(model, get_adapter_params(model))
    return model


def optimizer_of(a, model):
    """None where each parameter is updated in backward."""
    if a.adam == "paged-8bit":
        import bitsandbytes

        def make(parameters):
            return bitsandbytes.optim.PagedAdamW8bit(parameters, lr=2e-5)
    else:

        def make(parameters):
            return torch.optim.AdamW(parameters, lr=2e-5, fused=True)

    trained = [p for p in model.parameters() if p.requires_grad]
    if not a.in_backward:
        return make(trained)
    training.register_optim_in_bwd_hooks(model=model, optim_dict={p: make([p]) for p in trained})
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["8b", "3b"], default="8b")
    parser.add_argument("--way", choices=["full", "lora", "qlora"], default="full")
    parser.add_argument("--adam", choices=["fused", "paged-8bit"], default="fused")
    parser.add_argument("--loss", choices=["whole", "chunked"], default="chunked")
    parser.add_argument("--len", type=int, default=2048)
    for flag in ("--in-backward", "--compile", "--keep", "--offload"):
        parser.add_argument(flag, action="store_true")
    a = parser.parse_args()

    device = torch.device("cuda")
    with training.set_default_dtype(torch.bfloat16), device:
        model = model_of(a)
    if a.keep:
        training.set_activation_checkpointing(model, auto_wrap_policy={TransformerSelfAttentionLayer})
    loss_of = CEWithChunkedOutputLoss() if a.loss == "chunked" else torch.nn.CrossEntropyLoss(ignore_index=-100)
    if a.loss == "chunked":
        model.set_num_output_chunks(loss_of.num_output_chunks)
    if a.compile:
        training.compile_model(model, verbose=False)
        loss_of = training.compile_loss(loss_of, verbose=False)
    optimizer = optimizer_of(a, model)
    offloading = training.get_act_offloading_ctx_manager(model, a.offload)
    for _ in range(3):
        tokens = torch.zeros(2, a.len, dtype=torch.long, device=device)
        with offloading:
            logits = model(tokens)
        labels = torch.hstack((tokens[..., 1:], torch.full((2, 1), -100, device=device)))
        if a.loss == "whole":
            labels, logits = labels.reshape(-1), logits.reshape(-1, logits.size(-1))
        loss = loss_of(logits, labels)
        del logits
        loss.backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


main()
