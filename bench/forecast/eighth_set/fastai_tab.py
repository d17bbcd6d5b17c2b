"""fastai on a table and on texts: tabular_learner over names and numbers, then collab_learner; fit_flat_cos, a callback that keeps the best."""
import numpy
import pandas
import tempfile
from fastai.collab import CollabDataLoaders, collab_learner
from fastai.tabular.all import Categorify, FillMissing, Normalize, SaveModelCallback, TabularDataLoaders, tabular_learner
if __name__ == "__main__":
    r = numpy.random.default_rng(0)
    n = 24000
    table = pandas.DataFrame({**{f"c{i}": r.integers(0, 50 * (i + 1), n).astype(str) for i in range(8)}, **{f"x{i}": r.normal(size=n) for i in range(20)}, "y": r.integers(0, 5, n).astype(str)})
    dls = TabularDataLoaders.from_df(table, procs=[Categorify, FillMissing, Normalize], cat_names=[f"c{i}" for i in range(8)], cont_names=[f"x{i}" for i in range(20)], y_names="y", bs=4096, path=tempfile.mkdtemp(), num_workers=0)
    learn = tabular_learner(dls, layers=[2000, 1000], metrics=[])
    with learn.no_bar(), learn.no_logging():
        learn.fit_flat_cos(2, 1e-3, cbs=SaveModelCallback())
    ratings = pandas.DataFrame({"user": r.integers(0, 9000, n), "item": r.integers(0, 4000, n), "rating": r.integers(1, 6, n)})
    learn = collab_learner(CollabDataLoaders.from_df(ratings, bs=4096, num_workers=0), n_factors=120, y_range=(0.5, 5.5), use_nn=True, layers=[512, 256])
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(1, 5e-3, wd=0.1)
    print(learn.validate())
