"""Writes what tests/mxnet compares with: small symbols, and the model zoo's, with inputs and MXNet's own outputs.

Run it where MXNet is (the last release takes Python 3.8 and numpy 1.23); the tests themselves do without:

    python tests/mxnet/make_cases.py

MXNet's plain kernels run, without oneDNN: they take every parameter. And with oneDNN release 1.9.1 fuses FullyConnected with
the element-wise op after it also where something else reads the product, and leaves the element-wise op out there.
"""

import json
import lzma
import os
import zlib
from pathlib import Path

os.environ.update(MXNET_SUBGRAPH_BACKEND="NONE", MXNET_MKLDNN_ENABLED="0")

import mxnet as mx
import numpy as np

FOLDER = Path(__file__).parents[1] / "data" / "mxnet"
RANDOM = np.random.RandomState(7)
S, INTERNAL, V = mx.sym, mx.sym._internal, mx.sym.Variable
IMAGE = (2, 4, 7, 6)
ZOO = {
    "alexnet": 224, "densenet121": 224, "inceptionv3": 299, "mobilenet0.25": 64, "mobilenetv2_0.25": 64, "resnet18_v1": 64,
    "resnet18_v2": 64, "resnet50_v1": 64, "resnet50_v2": 64, "squeezenet1.0": 224, "squeezenet1.1": 224, "vgg11": 64,
    "vgg11_bn": 64,
}
CASES = {}


def ints(*values):
    """An input of whole numbers, as MXNet takes indices: in float32."""
    return np.array(values, np.float32)


def case(name, make, x=IMAGE, **more):
    """A symbol of `x` and further inputs, each given by its shape or as an array."""
    inputs = {"x": x, **more}
    variables = (V(key, dtype=getattr(value, "dtype", np.float32)) for key, value in inputs.items())
    CASES[name] = (make(*variables), inputs)


def array(value):
    if isinstance(value, np.ndarray):
        return value
    return RANDOM.randn(*value).astype(np.float32)


# convolutions ---------------------------------------------------------------------------------------------
case(
    "conv1d",
    lambda x: S.Convolution(x, kernel=(3,), num_filter=4, pad=(1,), stride=(2,), name="c"),
    (2, 3, 9),
)
case(
    "conv2d",
    lambda x: S.Convolution(
        x, kernel=(3, 2), num_filter=6, pad=(1, 0), stride=(2, 1), dilate=(1, 2), num_group=2, name="c"
    ),
)
case(
    "conv2d_no_bias",
    lambda x: S.Convolution(x, kernel=(1, 1), num_filter=3, no_bias=True, layout="NCHW", name="c"),
)
case("conv3d", lambda x: S.Convolution(x, kernel=(2, 2, 2), num_filter=2, name="c"), (1, 2, 4, 4, 4))
case(
    "deconv2d",
    lambda x: S.Deconvolution(
        x, kernel=(3, 3), num_filter=4, stride=(2, 2), pad=(1, 1), adj=(1, 0), num_group=2, name="d"
    ),
)
case(
    "deconv2d_bias",
    lambda x: S.Deconvolution(x, kernel=(2, 2), num_filter=3, no_bias=False, dilate=(2, 1), name="d"),
)
case(
    "deconv1d",
    lambda x: S.Deconvolution(x, kernel=(4,), num_filter=3, stride=(2,), pad=(1,), name="d"),
    (2, 3, 5),
)
case(
    "deconv2d_target",
    lambda x: S.Deconvolution(x, kernel=(3, 3), num_filter=2, stride=(2, 2), target_shape=(14, 11), name="d"),
)

# pooling --------------------------------------------------------------------------------------------------
for kind in ("max", "avg", "sum"):
    for convention in ("valid", "full"):
        case(
            f"pool_{kind}_{convention}",
            lambda x, k=kind, c=convention: S.Pooling(
                x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type=k, pooling_convention=c, name="p"
            ),
            (2, 2, 8, 7),
        )
    case(
        f"pool_{kind}_global",
        lambda x, k=kind: S.Pooling(x, pool_type=k, global_pool=True, kernel=(1, 1), name="p"),
    )
case(
    "pool_max_full_unpadded",
    lambda x: S.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max", pooling_convention="full"),
    (1, 2, 8, 8),
)
case(
    "pool_avg_full_unpadded",
    lambda x: S.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="avg", pooling_convention="full"),
    (1, 2, 8, 8),
)
case(
    "pool_avg_without_pad",
    lambda x: S.Pooling(
        x,
        kernel=(3, 3),
        stride=(2, 2),
        pad=(1, 1),
        pool_type="avg",
        count_include_pad=False,
        pooling_convention="full",
    ),
    (1, 2, 8, 8),
)
case("pool_lp", lambda x: S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="lp", p_value=2, name="p"))
case(
    "pool_lp_global",
    lambda x: S.Pooling(x, kernel=(2, 2), global_pool=True, pool_type="lp", p_value=2, name="p"),
)
case("pool1d", lambda x: S.Pooling(x, kernel=(3,), stride=(2,), pool_type="avg", name="p"), (2, 3, 9))
case(
    "pool3d",
    lambda x: S.Pooling(x, kernel=(2, 2, 2), stride=(2, 2, 2), pool_type="max", name="p"),
    (1, 2, 4, 4, 6),
)
case("adaptive_avg_1", lambda x: S.contrib.AdaptiveAvgPooling2D(x))
case("adaptive_avg", lambda x: S.contrib.AdaptiveAvgPooling2D(x, output_size=(3, 2)), (1, 2, 6, 8))

# normalization --------------------------------------------------------------------------------------------
case("batch_norm", lambda x: S.BatchNorm(x, name="b"))
case("batch_norm_gamma", lambda x: S.BatchNorm(x, fix_gamma=False, eps=2e-5, use_global_stats=True, name="b"))
case("batch_norm_last_axis", lambda x: S.BatchNorm(x, fix_gamma=False, axis=-1, name="b"))
case("batch_norm_2d", lambda x: S.BatchNorm(x, fix_gamma=False, name="b"), (3, 5))
case(
    "batch_norm_statistics",
    lambda x: S.Group(list(S.BatchNorm(x, fix_gamma=False, output_mean_var=True, name="b"))),
)
case("layer_norm", lambda x: S.LayerNorm(x, name="l"))
case("layer_norm_axis", lambda x: S.LayerNorm(x, axis=1, eps=1e-3, name="l"))
case("layer_norm_statistics", lambda x: S.Group(list(S.LayerNorm(x, output_mean_var=True, name="l"))))
case("instance_norm", lambda x: S.InstanceNorm(x, eps=0.01, name="i"))
case("group_norm", lambda x: S.GroupNorm(x, num_groups=2, name="g"))
for mode in ("instance", "channel", "spatial"):
    case(f"l2_{mode}", lambda x, m=mode: S.L2Normalization(x, mode=m, eps=0.1))
case("lrn", lambda x: S.LRN(x, nsize=3, alpha=0.01, beta=0.6, knorm=1.5))
case("div_sqrt_dim", lambda x: S.contrib.div_sqrt_dim(x))

# activations ----------------------------------------------------------------------------------------------
for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    case(f"activation_{kind}", lambda x, k=kind: S.Activation(x, act_type=k), (3, 5))
for kind in ("leaky", "elu", "selu", "gelu"):
    case(f"leaky_relu_{kind}", lambda x, k=kind: S.LeakyReLU(x, act_type=k, slope=0.3), (3, 5))
case("leaky_relu_prelu", lambda x: S.LeakyReLU(x, act_type="prelu", name="p"))
case(
    "leaky_relu_rrelu",
    lambda x: S.LeakyReLU(x, act_type="rrelu", lower_bound=0.1, upper_bound=0.4)[0],
    (3, 5),
)
case("hard_sigmoid", lambda x: S.hard_sigmoid(x, alpha=0.3, beta=0.4), (3, 5))
case("softmax", lambda x: S.softmax(x))
case("softmax_axis", lambda x: S.softmax(x, axis=1, temperature=2.5))
case(
    "softmax_length",
    lambda x, n: S.softmax(x, n, axis=1, use_length=True),
    (2, 5, 3),
    n=np.array([[1, 5, 3], [2, 2, 4]], np.int32),
)
case("softmin", lambda x: S.softmin(x, axis=1))
case("log_softmax", lambda x: S.log_softmax(x, axis=-1))
case("softmax_activation", lambda x: S.SoftmaxActivation(x), (3, 5))
case("softmax_activation_channel", lambda x: S.SoftmaxActivation(x, mode="channel"))
case("softmax_output", lambda x: S.SoftmaxOutput(x, name="softmax"), (3, 5))
case("softmax_output_multi", lambda x: S.SoftmaxOutput(x, multi_output=True, name="softmax"))
case("softmax_output_preserve", lambda x: S.SoftmaxOutput(x, preserve_shape=True, name="softmax"), (2, 3, 4))
case("softmax_output_3d", lambda x: S.SoftmaxOutput(x, name="softmax"), (2, 3, 4))
case("logistic_output", lambda x: S.LogisticRegressionOutput(x, name="out"), (3, 5))
case("linear_output", lambda x: S.LinearRegressionOutput(x, name="out"), (3, 5))
case("make_loss", lambda x: S.MakeLoss(S.BlockGrad(S.identity(x))), (3, 5))
case("dropout", lambda x: S.Dropout(x, p=0.4, axes=(1,)), (3, 5))
case("smooth_l1", lambda x: S.smooth_l1(x, scalar=2.0), (3, 5))

# element-wise ---------------------------------------------------------------------------------------------
for kind in (
    "abs arctan arcsinh ceil cos cosh erf exp expm1 floor negative relu sigmoid sign sin sinh softsign square tan tanh cbrt "
    "degrees radians logical_not zeros_like ones_like reciprocal rcbrt fix trunc"
).split():
    case(f"unary_{kind}", lambda x, k=kind: getattr(S, k)(x), (3, 5))
UNIT = RANDOM.rand(3, 5).astype(np.float32) * 0.9 + 0.05
for kind in "arccos arcsin arctanh log log2 log10 log1p sqrt rsqrt".split():
    case(f"unary_{kind}", lambda x, k=kind: getattr(S, k)(x), UNIT)
case("unary_arccosh", lambda x: S.arccosh(x), UNIT + 1)
HALVES = np.array([[-2.5, -1.5, -0.5, 0.5], [1.5, 2.5, 0.3, -0.7]], np.float32)
for kind in ("rint", "round"):
    case(f"unary_{kind}", lambda x, k=kind: getattr(S, k)(x), HALVES)
for kind in "add sub mul div maximum minimum hypot".split():
    case(f"broadcast_{kind}", lambda x, y, k=kind: getattr(S, f"broadcast_{k}")(x, y), (2, 3, 4), y=(2, 1, 4))
SMALL = np.array([[1, -2, 3, 0], [2, 2, -5, 7]], np.float32)
OTHER = np.array([[1, 2, -3, 3], [0, 3, -2, 0]], np.float32)
for kind in (
    "equal not_equal greater greater_equal lesser lesser_equal mod logical_and logical_or logical_xor".split()
):
    case(f"broadcast_{kind}", lambda x, y, k=kind: getattr(S, f"broadcast_{k}")(x, y), SMALL, y=OTHER)
case(
    "broadcast_mod_int", lambda x, y: S.broadcast_mod(x, y), SMALL.astype(np.int32), y=OTHER.astype(np.int32)
)
case(
    "broadcast_equal_int",
    lambda x, y: S.broadcast_equal(x, y),
    SMALL.astype(np.int32),
    y=OTHER.astype(np.int32),
)
case("broadcast_power", lambda x, y: S.broadcast_power(x, y), UNIT, y=(3, 5))
for kind in "add sub mul div".split():
    case(f"elemwise_{kind}", lambda x, y, k=kind: getattr(S, f"elemwise_{k}")(x, y), (3, 5), y=(3, 5))
for kind in (
    "plus minus rminus mul div rdiv maximum minimum hypot equal not_equal greater greater_equal lesser lesser_equal "
    "mod rmod logical_and logical_or logical_xor"
).split():
    case(f"scalar_{kind}", lambda x, k=kind: getattr(INTERNAL, f"_{k}_scalar")(x, scalar=2.0), SMALL[:, :3])
case("scalar_mod_zero", lambda x: INTERNAL._mod_scalar(x, scalar=0.0), SMALL)
case("scalar_power", lambda x: INTERNAL._power_scalar(x, scalar=2.5), UNIT)
case("scalar_rpower", lambda x: INTERNAL._rpower_scalar(x, scalar=2.5), (3, 5))
case("scalar_mul_int", lambda x: INTERNAL._mul_scalar(x, scalar=2.7), SMALL.astype(np.int32))
case("clip", lambda x: S.clip(x, a_min=-0.5, a_max=0.75), (3, 5))
case("cast", lambda x: S.Cast(x, dtype="int32"), (3, 5))
case("amp_cast", lambda x: S.amp_cast(x, dtype="float16"), (3, 5))
case("amp_multicast", lambda x, y: S.Group(list(S.amp_multicast(x, y, num_outputs=2))), (3, 5), y=(2, 2))
case("add_n", lambda x, y, z: S.add_n(x, y, z), (3, 5), y=(3, 5), z=(3, 5))
case("where", lambda x, y, z: S.where(x, y, z), SMALL, y=(2, 4), z=(2, 4))
case("where_rows", lambda x, y, z: S.where(x, y, z), ints(1, 0), y=(2, 3, 4), z=(2, 3, 4))

# shapes ---------------------------------------------------------------------------------------------------
for name, shape, x in [
    ("plain", (6, 4), (2, 3, 4)), ("codes_0_1", (0, -1), (2, 3, 4)), ("code_2", (-2, 1), (2, 3, 4)),
    ("code_3", (-3, 0), (2, 3, 4)), ("code_4", (-4, 1, 2, -2), (2, 3, 4)), ("code_4_rest", (0, -4, -1, 3, 0), (2, 6, 4)),
    ("codes_mixed", (0, -3, -2), (2, 3, 4, 5)), ("code_0_late", (-3, 0, 1), (2, 3, 4)),
]:
    case(f"reshape_{name}", lambda x, s=shape: S.Reshape(x, shape=s), x)
case("reshape_reverse", lambda x: S.Reshape(x, shape=(-1, 0), reverse=True), (10, 5, 4))
case("reshape_reverse_3", lambda x: S.Reshape(x, shape=(-3, 0), reverse=True), (2, 3, 4))
case("reshape_reverse_4", lambda x: S.Reshape(x, shape=(-1, 2, -4, 0), reverse=True), (6, 8))
case("reshape_like", lambda x, y: S.reshape_like(x, y), (6, 4), y=(2, 12))
case(
    "reshape_like_span",
    lambda x, y: S.reshape_like(x, y, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2),
    (30, 7),
    y=(15, 2, 4),
)
case("flatten", lambda x: S.Flatten(x))
case("transpose", lambda x: S.transpose(x, axes=(0, 2, 3, 1)))
case("transpose_all", lambda x: S.transpose(x), (2, 3, 4))
case("swapaxes", lambda x: S.SwapAxis(x, dim1=1, dim2=-1), (2, 3, 4))
case("expand_dims", lambda x: S.expand_dims(x, axis=-1), (2, 3))
case("squeeze", lambda x: S.squeeze(x), (1, 3, 1, 2))
case("squeeze_axis", lambda x: S.squeeze(x, axis=(0, -1)), (1, 3, 1))
case("squeeze_everything", lambda x: S.squeeze(x), (1, 1))
case("depth_to_space", lambda x: S.depth_to_space(x, block_size=2), (1, 8, 2, 3))
case("space_to_depth", lambda x: S.space_to_depth(x, block_size=2), (1, 2, 4, 6))
case("slice", lambda x: S.slice(x, begin=(0, None), end=(None, 3)), (2, 4, 3))
case("slice_step", lambda x: S.slice(x, begin=(8, None), end=(2, None), step=(-2, 2)), (9, 4))
case("slice_backwards", lambda x: S.slice(x, begin=(None,), end=(None,), step=(-3,)), (10, 2))
case("slice_axis", lambda x: S.slice_axis(x, axis=-1, begin=-3, end=None), (2, 7))
case("slice_like", lambda x, y: S.slice_like(x, y, axes=(-1,)), (4, 6), y=(2, 3))
case("slice_like_all", lambda x, y: S.slice_like(x, y), (4, 6), y=(2, 3))
case("reverse", lambda x: S.reverse(x, axis=(0, 2)), (2, 3, 4))
case("split", lambda x: S.Group(list(S.SliceChannel(x, num_outputs=2, axis=1))))
case("split_squeezed", lambda x: S.Group(list(S.split(x, num_outputs=3, axis=-1, squeeze_axis=True))), (2, 3))
case("split_v2", lambda x: S.Group(list(S.split_v2(x, (1, 4), axis=1))), (2, 7))
case("split_v2_sections", lambda x: S.Group(list(S.split_v2(x, 2, axis=1))), (2, 6))
case("crop_offset", lambda x: S.Crop(x, num_args=1, offset=(1, 2), h_w=(3, 2)))
case("crop_centre", lambda x, y: S.Crop(x, y, num_args=2, center_crop=True), y=(2, 4, 3, 4))
for mode in ("constant", "edge", "reflect"):
    case(
        f"pad_{mode}",
        lambda x, m=mode: S.Pad(x, mode=m, pad_width=(0, 0, 0, 0, 1, 2, 3, 0), constant_value=1.5),
    )
case("concat", lambda x, y: S.Concat(x, y, dim=2), y=(2, 4, 3, 6))
case("stack", lambda x, y: S.stack(x, y, axis=-1), (2, 3), y=(2, 3))
case("tile", lambda x: S.tile(x, reps=(2, 1, 3)), (2, 3))
case("tile_short", lambda x: S.tile(x, reps=(2,)), (2, 3))
case("repeat", lambda x: S.repeat(x, repeats=2), (2, 3))
case("repeat_axis", lambda x: S.repeat(x, repeats=3, axis=1), (2, 3, 2))
case("broadcast_to", lambda x: S.broadcast_to(x, shape=(0, 4, 3)), (2, 1, 3))
case("broadcast_axis", lambda x: S.broadcast_axis(x, axis=(1, 2), size=(4, 3)), (2, 1, 1))
case("broadcast_like", lambda x, y: S.broadcast_like(x, y), (1, 3), y=(2, 3))
case(
    "broadcast_like_axes",
    lambda x, y: S.broadcast_like(x, y, lhs_axes=(0,), rhs_axes=(-1,)),
    (1, 2, 3),
    y=(5, 6, 7),
)
case("upsampling", lambda x: S.UpSampling(x, scale=2, sample_type="nearest", num_args=1))
case(
    "upsampling_concat",
    lambda x, y: S.UpSampling(x, y, scale=2, sample_type="nearest", num_args=2),
    (1, 2, 4, 4),
    y=(1, 3, 2, 2),
)
case(
    "upsampling_sum",
    lambda x, y: S.UpSampling(x, y, scale=2, sample_type="nearest", num_args=2, multi_input_mode="sum"),
    (1, 2, 4, 4),
    y=(1, 2, 2, 2),
)
case(
    "upsampling_bilinear",
    lambda x: S.UpSampling(x, scale=2, sample_type="bilinear", num_filter=4, num_args=2, name="u"),
)
case(
    "upsampling_bilinear_3",
    lambda x: S.UpSampling(x, scale=3, sample_type="bilinear", num_filter=4, num_args=2, name="u"),
)
case("resize_corners", lambda x: S.contrib.BilinearResize2D(x, height=9, width=4))
case("resize_half_pixel", lambda x: S.contrib.BilinearResize2D(x, height=9, width=4, align_corners=False))
case(
    "resize_scale",
    lambda x: S.contrib.BilinearResize2D(x, scale_height=1.5, scale_width=2.0, mode="odd_scale"),
    (1, 2, 3, 5),
)
case(
    "resize_scale_size",
    lambda x: S.contrib.BilinearResize2D(x, scale_height=1.5, scale_width=2.0),
    (1, 2, 3, 5),
)
for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
    case(f"resize_{mode}", lambda x, m=mode: S.contrib.BilinearResize2D(x, mode=m))
case("resize_like", lambda x, y: S.contrib.BilinearResize2D(x, y, mode="like"), y=(1, 1, 3, 9))
case("shape_array", lambda x: S.shape_array(x))
case("size_array", lambda x: S.size_array(x))

# reductions -----------------------------------------------------------------------------------------------
for kind in ("sum", "mean", "prod", "max", "min", "nansum", "nanprod", "norm"):
    case(f"{kind}_all", lambda x, k=kind: getattr(S, k)(x), (2, 3, 4))
    case(f"{kind}_axis", lambda x, k=kind: getattr(S, k)(x, axis=(0, -1), keepdims=True), (2, 3, 4))
    case(f"{kind}_one_axis", lambda x, k=kind: getattr(S, k)(x, axis=1), (2, 3, 4))
case("sum_exclude", lambda x: S.sum(x, axis=1, exclude=True), (2, 3, 4))
case("mean_all_kept", lambda x: S.mean(x, keepdims=True), (2, 3))
case("sum_every_axis", lambda x: S.sum(x, axis=(1, 0)), (2, 3))
case("nansum_nan", lambda x: S.nansum(x, axis=1), np.array([[1, np.nan], [2, 3]], np.float32))
case("norm_1", lambda x: S.norm(x, ord=1, axis=1), (2, 3))
case("argmax", lambda x: S.argmax(x, axis=1), (2, 3, 4))
case("argmax_kept", lambda x: S.argmax(x, axis=-1, keepdims=True), (2, 3, 4))
case("argmax_all", lambda x: S.argmax(x), (2, 3))
case("argmax_all_kept", lambda x: S.argmax(x, keepdims=True), (2, 3))
case("argmax_1d", lambda x: S.argmax(x, axis=0), (5,))
case("argmax_int", lambda x: S.argmax(x, axis=1), SMALL.astype(np.int32))
case("argmin", lambda x: S.argmin(x, axis=0), (2, 3))
case("argmax_channel", lambda x: S.argmax_channel(x), (2, 3, 4))
case("cumsum", lambda x: S.cumsum(x, axis=1), (2, 3))
case("cumsum_all", lambda x: S.cumsum(x), (2, 3))
case("moments", lambda x: S.Group(list(S.moments(x, axes=(0, 2)))), (2, 3, 4))
case("moments_kept", lambda x: S.Group(list(S.moments(x, axes=(1,), keepdims=True))), (2, 3, 4))

# products -------------------------------------------------------------------------------------------------
case("fully_connected", lambda x: S.FullyConnected(x, num_hidden=3, name="f"), (2, 3, 4))
case("fully_connected_2d", lambda x: S.FullyConnected(x, num_hidden=3, no_bias=True, name="f"), (2, 4))
case("fully_connected_rows", lambda x: S.FullyConnected(x, num_hidden=3, flatten=False, name="f"), (2, 3, 4))
case(
    "fully_connected_rows_no_bias",
    lambda x: S.FullyConnected(x, num_hidden=3, flatten=False, no_bias=True, name="f"),
    (2, 3, 4),
)
case("dot", lambda x, y: S.dot(x, y), (2, 3), y=(3, 4))
case("dot_transposed", lambda x, y: S.dot(x, y, transpose_a=True, transpose_b=True), (3, 2), y=(4, 3))
case("dot_vectors", lambda x, y: S.dot(x, y), (3,), y=(3,))
case("dot_3d", lambda x, y: S.dot(x, y), (2, 3, 4), y=(4, 5))
case("dot_3d_transposed", lambda x, y: S.dot(x, y, transpose_a=True), (4, 3, 2), y=(4, 5))
case("dot_matrix_vector", lambda x, y: S.dot(x, y), (2, 3), y=(3,))
case("batch_dot", lambda x, y: S.batch_dot(x, y), (2, 3, 4), y=(2, 4, 5))
case(
    "batch_dot_transposed",
    lambda x, y: S.batch_dot(x, y, transpose_a=True, transpose_b=True),
    (2, 4, 3),
    y=(2, 5, 4),
)
case("gemm2", lambda x, y: S.linalg.gemm2(x, y, transpose_b=True, alpha=0.5), (2, 3, 4), y=(2, 5, 4))
case("gemm", lambda x, y, z: S.linalg.gemm(x, y, z, alpha=0.5, beta=2.0), (3, 4), y=(4, 5), z=(3, 5))

# indices, order, creation ---------------------------------------------------------------------------------
case("embedding", lambda x: S.Embedding(x, input_dim=4, output_dim=3, name="e"), ints(-1, 0, 3, 9))
for mode in ("clip", "wrap"):
    case(f"take_{mode}", lambda x, y, m=mode: S.take(x, y, axis=1, mode=m), (2, 4), y=ints(-1, 5, 2))
case("take_raise", lambda x, y: S.take(x, y, axis=-1, mode="raise"), (2, 4), y=ints(1, 3, 2))
case("pick", lambda x, y: S.pick(x, y, axis=1), (3, 4), y=ints(-1, 2, 7))
case("pick_kept", lambda x, y: S.pick(x, y, axis=-1, keepdims=True, mode="wrap"), (3, 4), y=ints(-1, 2, 7))
case("gather_nd", lambda x, y: S.gather_nd(x, y), (3, 4, 2), y=np.array([[0, 2, 1], [3, 0, 1]], np.float32))
case("one_hot", lambda x: S.one_hot(x, depth=3, on_value=2.0, off_value=-1.0), ints(-1, 0, 2, 5))
case("one_hot_int", lambda x: S.one_hot(x, depth=3, dtype="int32"), ints(1, 0))
for kind in ("indices", "value", "mask"):
    case(f"topk_{kind}", lambda x, k=kind: S.topk(x, k=2, ret_typ=k), (3, 5))
case(
    "topk_both",
    lambda x: S.Group(list(S.topk(x, k=2, axis=0, ret_typ="both", is_ascend=True, dtype="int32"))),
    (3, 5),
)
case("topk_all", lambda x: S.topk(x, k=0, axis=1), (3, 5))
case("topk_flat", lambda x: S.topk(x, k=4, axis=None), (3, 5))
case("sort", lambda x: S.sort(x, axis=0), (3, 5))
case("sort_flat", lambda x: S.sort(x, axis=None, is_ascend=False), (3, 5))
case("argsort", lambda x: S.argsort(x, is_ascend=False), (3, 5))
case("zeros", lambda x: S.broadcast_add(x, INTERNAL._zeros(shape=(2, 3))), (2, 3))
case("ones", lambda x: S.broadcast_add(x, INTERNAL._ones(shape=(2, 3))), (2, 3))
case("full", lambda x: S.broadcast_add(x, INTERNAL._full(shape=(1, 3), value=2.5)), (2, 3))
case("arange", lambda x: S.broadcast_add(x, INTERNAL._arange(start=1.0, stop=2.5, step=0.5)), (2, 3))
case("arange_end", lambda x: S.broadcast_add(x, S.arange(3)), (2, 3))
case("arange_repeat", lambda x: S.broadcast_add(x, S.arange(0, 3, repeat=2)), (2, 6))
case("arange_like", lambda x: S.contrib.arange_like(x, start=1.0, step=0.5), (2, 3))
case("arange_like_axis", lambda x: S.contrib.arange_like(x, axis=1, repeat=2), (2, 4))
case("eye", lambda x: S.broadcast_add(x, S.eye(2, 3, 1)), (2, 3))
case(
    "roi_pooling",
    lambda x, y: S.ROIPooling(x, y, pooled_size=(2, 2), spatial_scale=0.7),
    (2, 2, 8, 8),
    y=np.array([[0, 1, 1, 5, 6], [1, 0, 2, 7, 7]], np.float32),
)
case(
    "roi_align",
    lambda x, y: S.contrib.ROIAlign(x, y, pooled_size=(2, 2), spatial_scale=0.7, sample_ratio=2),
    (2, 2, 8, 8),
    y=np.array([[0, 1, 1, 5, 6], [1, 0, 2, 7, 7]], np.float32),
)

# whole networks -------------------------------------------------------------------------------------------


def classifier(x):
    """A classifier with what a converter must not trip over: a shared product, labels, placement, a repeated output."""
    with mx.AttrScope(ctx_group="first"):
        x = S.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
        x = S.Activation(x, act_type="relu", name="relu")
    x = S.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    x = S.FullyConnected(x, num_hidden=3, name="fc")
    return S.Group([S.SoftmaxOutput(x, name="softmax"), S.square(x, name="squared"), x])


case("classifier", classifier)


def run(symbol, inputs):
    """The arrays of the inputs and parameters, and MXNet's outputs."""
    data = {key: array(value) for key, value in inputs.items()}
    shapes, _, aux_shapes = symbol.infer_shape(**{key: value.shape for key, value in data.items()})
    params = {
        name: array(shape)
        for name, shape in zip(symbol.list_arguments(), shapes)
        if name not in data and not name.endswith("label")
    }
    for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes):
        params[name] = (RANDOM.rand(*shape) + 0.5).astype(np.float32)
    labels = {n: mx.nd.zeros(s) for n, s in zip(symbol.list_arguments(), shapes) if n.endswith("label")}
    every = {name: mx.nd.array(value, dtype=value.dtype) for name, value in {**data, **params}.items()}
    executor = symbol.bind(
        mx.cpu(),
        {**{name: every[name] for name in symbol.list_arguments() if name in every}, **labels},
        aux_states={name: every[name] for name in symbol.list_auxiliary_states()},
        grad_req="null",
    )
    return data, params, [output.asnumpy() for output in executor.forward(is_train=False)]


def seeded(name, shape):
    """The weights of a network of the model zoo: drawn by name, so that they need not be kept."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith(("gamma", "var")):
        return (random.rand(*shape) + 0.5).astype(np.float32)
    if len(shape) == 1:
        return (random.randn(*shape) * 0.1).astype(np.float32)
    return (random.randn(*shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def write_zoo():
    """The symbols of MXNet's vision model zoo, with the outputs for seeded weights and two seeded inputs."""
    symbols, arrays = {}, {}
    for name, size in ZOO.items():
        net = mx.gluon.model_zoo.vision.get_model(name, classes=10, prefix="net_")
        symbol = net(V("data"))
        data = np.random.RandomState(0).randn(2, 3, size, size).astype(np.float32)
        shapes, _, aux_shapes = symbol.infer_shape(data=data.shape)
        names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
        params = {n: mx.nd.array(seeded(n, s)) for n, s in zip(names, [*shapes, *aux_shapes]) if n != "data"}
        args = {n: params.get(n, mx.nd.array(data)) for n in symbol.list_arguments()}
        aux = {n: params[n] for n in symbol.list_auxiliary_states()}
        symbols[name] = json.loads(symbol.tojson())
        arrays[name] = (
            symbol.bind(mx.cpu(), args, aux_states=aux, grad_req="null").forward(is_train=False)[0].asnumpy()
        )
        print(name, float(np.abs(arrays[name][0] - arrays[name][1]).max()), flush=True)
    with open(FOLDER / "zoo.json.xz", "wb") as file:
        file.write(lzma.compress(json.dumps(symbols, separators=(",", ":")).encode()))
    np.savez_compressed(FOLDER / "zoo.npz", **arrays)


def write_many_ops():
    """What MXNet's plain kernels give for the shared model many_ops."""
    symbol, args, aux = mx.model.load_checkpoint(str(FOLDER / "many_ops"), 0)
    with np.load(FOLDER / "many_ops-io.npz") as arrays:
        args["data"] = mx.nd.array(arrays["data"])
    outputs = symbol.bind(mx.cpu(), args, aux_states=aux, grad_req="null").forward(is_train=False)
    np.savez_compressed(
        FOLDER / "many_ops-plain.npz", **{f"output{i}": o.asnumpy() for i, o in enumerate(outputs)}
    )


def write_cases():
    symbols, arrays = {}, {}
    for name, (symbol, inputs) in CASES.items():
        try:
            data, params, outputs = run(symbol, inputs)
        except mx.base.MXNetError as error:
            raise SystemExit(f"{name}: {str(error).strip().splitlines()[-1]}") from error
        symbols[name] = json.loads(symbol.tojson())
        for kind, item in (("data", data), ("param", params), ("out", dict(enumerate(outputs)))):
            arrays.update({f"{name}|{kind}|{key}": value for key, value in item.items()})
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(symbol, separators=(',', ':'))}" for name, symbol in symbols.items()
    )
    (FOLDER / "cases.json").write_text(f"{{\n{lines}\n}}\n")
    np.savez_compressed(FOLDER / "cases.npz", **arrays)
    print(f"{len(symbols)} cases")


if __name__ == "__main__":
    write_cases()
    write_many_ops()
    write_zoo()
