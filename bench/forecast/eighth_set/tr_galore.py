"""Trainer with GaLore: gradients of the linear layers projected to rank 64 by their singular vectors, found anew every second step, layer by layer in the backward pass first, then all at once."""
import tempfile
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
rows = [{"input_ids": (x := torch.randint(0, 8000, (256,))), "labels": x} for _ in range(64)]
for optim in ("galore_adamw_layerwise", "galore_adamw"):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8, tie_word_embeddings=True))
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=5, optim=optim, optim_target_modules=["attn", "mlp"], optim_args="rank=64, update_proj_gap=2, scale=1.8", learning_rate=1e-3, bf16=True,
                             report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=2, gradient_checkpointing=False)
    Trainer(model=model, args=args, train_dataset=rows).train()
