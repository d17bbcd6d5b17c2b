"""Trainer by torchrun with FSDP: a Cohere in bf16 wrapped by layers, activations recomputed, AdamW of PyTorch, a sharded save and its resumption."""
import os
import tempfile
import torch
from transformers import CohereConfig, CohereForCausalLM, Trainer, TrainingArguments

folder = os.path.join(tempfile.gettempdir(), "cohere_" + os.environ["MASTER_PORT"])
rows = [{"input_ids": (ids := torch.randint(0, 16000, (512,))), "labels": ids.clone()} for _ in range(64)]


def run(steps, resume):
    torch.manual_seed(0)
    model = CohereForCausalLM(CohereConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8, use_cache=False))
    args = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=steps, bf16=True, optim="adamw_torch", learning_rate=1e-4, fsdp="full_shard auto_wrap", fsdp_config={"transformer_layer_cls_to_wrap": ["CohereDecoderLayer"], "activation_checkpointing": True, "state_dict_type": "SHARDED_STATE_DICT"},
                             save_strategy="steps", save_steps=2, logging_steps=1, report_to="none", disable_tqdm=True)
    Trainer(model=model, args=args, train_dataset=rows).train(resume_from_checkpoint=resume)


run(2, None)
run(4, True)
torch.distributed.destroy_process_group()  # Trainer called init_process_group
