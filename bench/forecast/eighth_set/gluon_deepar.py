"""GluonTS by its estimators: DeepAR, then PatchTST, from a data set of made-up series to forecasts with samples."""
import numpy
import pandas
import torch
from gluonts.dataset.common import ListDataset
from gluonts.evaluation import make_evaluation_predictions
from gluonts.torch import DeepAREstimator, PatchTSTEstimator
if __name__ == "__main__":
    torch.manual_seed(0)
    r = numpy.random.default_rng(0)
    data = ListDataset([{"start": pandas.Period("2024-01-01", freq="h"), "target": r.gamma(2.0, 3.0, 900)} for _ in range(24)], freq="h")
    quiet = dict(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False)
    for made in (DeepAREstimator(freq="h", prediction_length=24, context_length=96, num_layers=3, hidden_size=256, batch_size=128, num_batches_per_epoch=6, trainer_kwargs=quiet),
                 PatchTSTEstimator(prediction_length=24, context_length=336, patch_len=16, d_model=256, nhead=8, dim_feedforward=512, num_encoder_layers=4, batch_size=128, num_batches_per_epoch=6, trainer_kwargs=quiet)):
        predictor = made.train(data)
        forecasts, _ = make_evaluation_predictions(data, predictor=predictor, num_samples=100)
        print(next(iter(forecasts)).mean.shape)
