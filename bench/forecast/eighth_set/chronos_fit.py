"""chronos-forecasting: a small Chronos Bolt with random weights, trained by Trainer, then quantiles by its pipeline."""
import tempfile
import torch
from chronos import ChronosBoltPipeline
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from transformers import T5Config, Trainer, TrainingArguments
torch.manual_seed(0)
config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8, dropout_rate=0.1, is_gated_act=False, feed_forward_proj="relu", vocab_size=2, pad_token_id=0, decoder_start_token_id=0,
                  chronos_config={"context_length": 512, "prediction_length": 64, "input_patch_size": 16, "input_patch_stride": 16, "quantiles": [0.1, 0.5, 0.9], "use_reg_token": True})
config.chronos_pipeline_class = "ChronosBoltPipeline"
model = ChronosBoltModelForForecasting(config)
rows = [{"context": torch.randn(512), "target": torch.randn(64), "target_mask": torch.ones(64, dtype=torch.bool)} for _ in range(320)]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=64, max_steps=5, tf32=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=2, optim="adamw_torch_fused", lr_scheduler_type="linear", label_names=["target"])
Trainer(model=model, args=args, train_dataset=rows).train()
pipeline = ChronosBoltPipeline(model.eval())
print([x.shape for x in pipeline.predict_quantiles(torch.randn(32, 700), prediction_length=96, quantile_levels=[0.1, 0.5, 0.9])])
