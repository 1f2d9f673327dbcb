"""The rules of ops that draw, make or transform signals, texts and features: random numbers, windows, spectra, ai.onnx.ml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.graph.symbols import AnySize, Sizes
from partita.passes.infer.result_types import trained_slots
from partita.passes.infer.rules import Unknown, alike, axis_of, counted, inside, rule, single

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context


@rule("RandomNormal", "RandomUniform")
def drawn(c: Context) -> Sequence[Sizes]:
    return [tuple(c.attribute("shape"))]


@rule("Multinomial")
def samples(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    c.equal(len(data), 2, "the rank of the data and 2")
    return [(data[0], int(c.attribute("sample_size", 1)))]


def _number(c: Context, slot: int, what: str) -> AnySize:
    """The single element of an input."""
    single(c, slot)
    value = (c.values(slot) or [None])[0]
    return c.unknown(what) if value is None else value


@rule("BlackmanWindow", "HammingWindow", "HannWindow")
def window(c: Context) -> Sequence[Sizes]:
    size = _number(c, 0, "the size")
    c.at_least(size, 0, "the size of a window and nothing")
    return [(size,)]


@rule("MelWeightMatrix")
def mel_weights(c: Context) -> Sequence[Sizes]:
    return [(_number(c, 1, "the length") // 2 + 1, _number(c, 0, "the number of bands"))]


@rule("DFT")
def transformed(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    c.at_least(len(data), 2, "the rank of the data and 2")
    parts = data[-1]
    if isinstance(parts, int):
        c.at_least(2, parts, "the real and imaginary part and the last dimension")
        c.at_least(parts, 1, "the last dimension and 1")
    is_halved, is_inverse = bool(c.attribute("onesided", 0)), bool(c.attribute("inverse", 0))
    axis = (c.values(2) or [None])[0] if c.has(2) else c.attribute("axis", 1 if c.version < 20 else -2)
    if not isinstance(axis, int):
        sides = data[:-1] if not is_halved and not c.has(1) else tuple([c.unknown(f"size {d}") for d in range(len(data) - 1)])
        raise Unknown("the axis", [(*sides, 1 if is_halved and is_inverse else 2)])
    inside(c, axis, len(data))
    axis %= len(data)
    whole = (data[axis] - 1) * 2 if is_halved and is_inverse else data[axis]
    length = _number(c, 1, "the length") if c.has(1) else whole
    sizes = [*data[:-1], 1 if is_halved and is_inverse else 2]
    sizes[axis] = length // 2 + 1 if is_halved and not is_inverse else length
    return [tuple(sizes)]


@rule("StringConcat")
def joined_texts(c: Context) -> Sequence[Sizes]:
    return [c.broadcast(c.shapes(), "the sizes of the operands")]


@rule("StringSplit")
def parts_of_texts(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    return [(*data, c.unknown("the most parts")), data][: c.results]


@rule("StringNormalizer")
def normalized_texts(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    c.at_least(2, len(data), "2 and the rank of the data")
    if len(data) == 2:
        c.equal(data[0], 1, "the rows of the texts and 1")
    return [(*data[:-1], c.unknown("how many texts are left") if c.attribute("stopwords") else data[-1])]


@rule("TfIdfVectorizer")
def counted_ngrams(c: Context) -> Sequence[Sizes]:
    data, columns = c.shape(0), c.attribute("ngram_indexes")
    c.at_least(2, len(data), "2 and the rank of the data")
    return [(*data[:-1], max(columns) + 1)]


@rule("Unique")
def distinct(c: Context) -> Sequence[Sizes]:
    count = c.unknown("how many are distinct")
    if c.attribute("axis") is None:
        with counted(c, lambda: [(count,), (count,), (c.unknown("how many there are"),), (count,)]):
            whole = math.prod(c.shape(0))
        return [(count,), (count,), (whole,), (count,)][: c.results]
    data = c.shape(0)
    axis = axis_of(c, len(data), 0)
    return [(*data[:axis], count, *data[axis + 1 :]), (count,), (data[axis],), (count,)][: c.results]


@rule("ImageDecoder")
def decoded(c: Context) -> Sequence[Sizes]:
    channels = 1 if c.attribute("pixel_format", "RGB") == "Grayscale" else 3
    return [(c.unknown("the height"), c.unknown("the width"), channels)]


@rule("SequenceLength", "OptionalHasElement")
def one_number(c: Context) -> Sequence[Sizes]:
    return [()]


@rule("SwiGLU")
def gated(c: Context) -> Sequence[Sizes]:
    alike(c, c.shape(1), c.shape(0), "the sizes of the values and of the gates")
    return [c.shape(0)]


@rule("LinearAttention")
def linear_attention(c: Context) -> Sequence[Sizes]:
    query, key, value = c.shape(0), c.shape(1), c.shape(2)
    heads, of_keys = int(c.attribute("q_num_heads")), int(c.attribute("kv_num_heads"))
    c.at_least(min(heads, of_keys), 1, "the number of heads and 1")
    width = value[2] // of_keys
    state = c.shape(3) if c.has(3) else (query[0], of_keys, key[2] // of_keys, width)
    return [(*query[:2], heads * width), state][: c.results]


@rule("CausalConvWithState")
def causal_convolution(c: Context) -> Sequence[Sizes]:
    data, weights = c.shape(0), c.shape(1)
    return [data, c.shape(3) if c.has(3) else (*data[:2], weights[2] - 1)][: c.results]


@rule("ai.onnx.preview.FlexAttention")
def flexible_attention(c: Context) -> Sequence[Sizes]:
    return [(*c.shape(0)[:3], c.shape(2)[3])]


@rule("ai.onnx.preview.training.Adagrad", "ai.onnx.preview.training.Momentum", "ai.onnx.preview.training.Adam")
def optimized(c: Context) -> Sequence[Sizes]:
    return [c.shape(slot) for slot in trained_slots(c)]


@rule("ai.onnx.preview.training.Gradient")
def gradients(c: Context) -> Sequence[Sizes]:
    return [c.shape(slot) for slot in range(c.results)]


@rule("ai.onnx.ml.Binarizer", "ai.onnx.ml.CategoryMapper", "ai.onnx.ml.Imputer", "ai.onnx.ml.LabelEncoder")
@rule("ai.onnx.ml.Normalizer", "ai.onnx.ml.Scaler")
def element_by_element(c: Context) -> Sequence[Sizes]:
    return [c.shape(0)]


@rule("ai.onnx.ml.OneHotEncoder")
def encoded(c: Context) -> Sequence[Sizes]:
    classes = c.attribute("cats_int64s") or c.attribute("cats_strings")
    return [(*c.shape(0), len(classes))]


@rule("ai.onnx.ml.ArrayFeatureExtractor")
def features(c: Context) -> Sequence[Sizes]:
    data, chosen = c.shape(0), c.shape(1)
    return [(*((1,) if len(data) == 1 else data[:-1]), chosen[-1])]


@rule("ai.onnx.ml.TreeEnsemble", "ai.onnx.ml.TreeEnsembleRegressor")
def regressed(c: Context) -> Sequence[Sizes]:
    return [(c.shape(0)[0], int(c.attribute("n_targets", 1)))]


@rule("ai.onnx.ml.LinearClassifier", "ai.onnx.ml.SVMClassifier", "ai.onnx.ml.TreeEnsembleClassifier")
def classified(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    rows = data[0] if len(data) > 1 else 1
    return [(rows,), (rows, c.unknown("the number of scores"))][: c.results]
