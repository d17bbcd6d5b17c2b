"""Trains models of transformers that the other programs do not have, by name, in fp16, bf16 or FP32, under several optimizers."""
import argparse

import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt-neox")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--precision", default="autocast", choices=["autocast", "fp16", "bf16", "fp32"])
p.add_argument("--optimizer", default="AdamW", help="a class of torch.optim")
p.add_argument("--compile", default="", help="a mode of torch.compile")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--clip", action="store_true")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()

DECODER = dict(vocab_size=40000, hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, max_position_embeddings=4096)
GATED = dict(DECODER, intermediate_size=2560, num_key_value_heads=4)
ENCODER = dict(hidden_size=640, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=10)
MODELS = {
    "gpt-neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**DECODER, intermediate_size=4096)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**GATED)),
    "granite": lambda: t.GraniteForCausalLM(t.GraniteConfig(**GATED)),
    "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**dict(GATED, num_hidden_layers=4, intermediate_size=1024), num_local_experts=8)),
    "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(vocab_size=40000, hidden_size=1024, n_layer=8, n_head=16)),
    "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(vocab_size=40000, hidden_size=1024, num_hidden_layers=8, num_attention_heads=16)),
    "deberta": lambda: t.DebertaV2ForMaskedLM(t.DebertaV2Config(vocab_size=30000, **ENCODER, relative_attention=True, position_buckets=256,
                                                                max_relative_positions=-1, pos_att_type=["p2c", "c2p"], share_att_key=True)),
    "bart": lambda: t.BartForConditionalGeneration(t.BartConfig(vocab_size=30000, d_model=768, encoder_layers=5, decoder_layers=5, encoder_ffn_dim=3072,
                                                                decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12)),
    "clip": lambda: t.CLIPModel(t.CLIPConfig(text_config=dict(num_hidden_layers=8, vocab_size=30000, eos_token_id=2, bos_token_id=1, pad_token_id=0),
                                             vision_config=dict(num_hidden_layers=8, image_size=192, patch_size=16))),
    "swin": lambda: t.SwinForImageClassification(t.SwinConfig(image_size=224, embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], num_labels=1000)),
    "segformer": lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig(num_labels=40)),
}


def batch_of(name):
    ids = torch.randint(3, 30000, (a.batch, a.len), device="cuda")
    if name == "clip":
        return dict(input_ids=ids[:, :77], pixel_values=torch.randn(a.batch, 3, 192, 192, device="cuda"), return_loss=True)
    if name == "swin":
        return dict(pixel_values=torch.randn(a.batch, 3, 224, 224, device="cuda"), labels=ids[:, 0] % 1000)
    if name == "segformer":
        return dict(pixel_values=torch.randn(a.batch, 3, a.len, a.len, device="cuda"), labels=torch.randint(40, (a.batch, a.len, a.len), device="cuda"))
    return dict(input_ids=ids, labels=ids)


torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16 if a.precision == "bf16" else torch.float32)
with torch.device("cuda"):
    model = MODELS[a.model]()
model.train()
if a.checkpoint:
    model.gradient_checkpointing_enable()
run = torch.compile(model, mode=a.compile) if a.compile else model
optimizer = getattr(torch.optim, a.optimizer)(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda", enabled=a.precision == "fp16")
kind = {"autocast": torch.bfloat16, "fp16": torch.float16}.get(a.precision)
for step in range(a.steps):
    for part in range(a.accumulate):
        with torch.autocast("cuda", kind, enabled=kind is not None):
            loss = run(**batch_of(a.model)).loss / a.accumulate
        scaler.scale(loss).backward()
    if a.clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
