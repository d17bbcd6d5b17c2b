"""pytorch-forecasting: its TimeSeriesDataSet of made-up sales, N-HiTS and the temporal fusion transformer from the data set, quantile loss, trained and validated by Lightning, predictions."""
import lightning.pytorch as pl
import numpy
import pandas
import torch
from pytorch_forecasting import NHiTS, QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import GroupNormalizer
if __name__ == "__main__":
    torch.manual_seed(0)
    r = numpy.random.default_rng(0)
    table = pandas.DataFrame({"t": list(range(120)) * 40, "shop": numpy.repeat([f"s{i}" for i in range(40)], 120), "sold": r.gamma(2.0, 3.0, 4800), "price": r.normal(size=4800), "day": [str(i % 7) for i in range(120)] * 40})
    common = dict(time_idx="t", target="sold", group_ids=["shop"], max_encoder_length=48, min_encoder_length=48, max_prediction_length=12, time_varying_unknown_reals=["sold"], time_varying_known_reals=["price", "t"],
                  target_normalizer=GroupNormalizer(groups=["shop"]))
    for kind in ("tft", "nhits"):
        more = dict(static_categoricals=["shop"], time_varying_known_categoricals=["day"]) if kind == "tft" else {}
        rows = TimeSeriesDataSet(table[table.t < 100], **common, **more)
        check = TimeSeriesDataSet.from_dataset(rows, table, min_prediction_idx=90, stop_randomization=True)
        train, val = rows.to_dataloader(train=True, batch_size=256, num_workers=0), check.to_dataloader(train=False, batch_size=256, num_workers=0)
        made = (TemporalFusionTransformer.from_dataset(rows, hidden_size=96, attention_head_size=4, dropout=0.1, hidden_continuous_size=32, loss=QuantileLoss(), learning_rate=0.01) if kind == "tft"
                else NHiTS.from_dataset(rows, hidden_size=512, loss=QuantileLoss(), learning_rate=1e-3, weight_decay=1e-2))
        trainer = pl.Trainer(max_epochs=1, limit_train_batches=6, limit_val_batches=2, accelerator="gpu", devices=1, gradient_clip_val=0.1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(made, train, val)
        print(made.predict(val, trainer_kwargs=dict(accelerator="gpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)).shape)
