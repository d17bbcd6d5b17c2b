"""The operations of PyTorch whose results are computed again, and up to which size."""
import os

MOST = int(os.environ.get("HEADROOM_DRY_VALUES_MOST", 1 << 22))  # elements of an integer tensor that is computed
NUMBERS = frozenset((int, float, bool, complex))
FEW = 64  # elements of a floating one
FLOATS = 1 << 16  # the same, where all that it is made of may be known (floats.py)
LATER = 1 << 15  # elements: larger results are computed when they are read, and most never are
FLOATS_LATER = 1 << 22  # the same, of results that are computed when they are read
KNOWN = 1 << 20  # bytes: what the library itself keeps of a copy (values.h)
COPIED = 1 << 18  # elements: the library keeps larger copies in no case
MOST_PIECES = 1 << 12  # of a tensor that is forgotten piece by piece, so that what lies between stays known
COMPARISONS = "eq ne lt le gt ge logical_not logical_and logical_or logical_xor".split()

ELEMENTWISE = """add sub rsub mul div true_divide floor_divide remainder fmod neg abs reciprocal sqrt rsqrt pow exp exp2 expm1 log log2 log10 log1p ceil
floor round trunc sign clamp clamp_min clamp_max maximum minimum fmax fmin lerp where masked_fill eq ne lt le gt ge isnan isposinf isneginf
logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ sigmoid tanh gcd fill""".split()
OTHERS = """sum mean prod cumsum cumprod cummax cummin _cummax_helper _cummin_helper amax amin aminmax min max all any argmax argmin sort topk kthvalue
median mode count_nonzero isin cat index index_select gather take scatter scatter_add scatter_reduce index_put _index_put_impl index_add
index_fill index_copy masked_scatter put tril triu flip roll repeat_interleave searchsorted bucketize bincount histc arange linspace eye masked_select
random randperm bernoulli uniform multinomial copy zero logcumsumexp nansum unfold_copy""".split()
NOW = "histc random randperm bernoulli uniform multinomial".split()  # never computed later
DRAWN = "random randperm bernoulli uniform multinomial".split()
# Called by another overload with a number that lies on the card, which PyTorch cannot show to Python; that overload is seen instead.
LEFT = "aten::pow.Tensor_Tensor aten::pow.Tensor_Tensor_out aten::pow_.Tensor aten::isin.Tensor_Tensor_out".split()
PRODUCTS = "mm addmm bmm baddbmm addmv addbmm dot".split()
# Written though PyTorch's schema does not say so.
WRITTEN = dict.fromkeys(("cudnn_batch_norm", "native_batch_norm", "batch_norm_gather_stats_with_counts"), ("running_mean", "running_var"))
# They fill their results, and a kernel that nothing here sees goes on: found with the samples of PyTorch's own tests (2.11), unknown and of a few numbers.
CLEARED = """upsample_linear1d upsample_bicubic2d max_unpool2d max_unpool3d histc bincount nll_loss2d_forward lu_unpack linalg_lu linalg_inv_ex
linalg_householder_product unfold_backward""".split()
SEARCHES = ("searchsorted", "Scalar"), ("bucketize", "Scalar")
GROWING = "repeat_interleave bincount".split()  # as large as a value says, with nothing that bounds it
READING = "nonzero _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive equal".split()  # they read a count of their own inside
LOOKED_UP = "embedding _embedding_bag _embedding_bag_forward_only nll_loss_forward nll_loss2d_forward".split()
