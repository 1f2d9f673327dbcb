"""Traits of ops, one row per op of ONNX and onnxruntime. A list of ops anywhere in the product is a query of this table."""

from __future__ import annotations

from functools import cache

from partita.graph.errors import GraphError, did_you_mean

TRAITS = {
    "unary": "applies a function to each element of its first operand",
    "broadcast": "combines elements of operands that are broadcast to one shape",
    "variadic": "combines any number of operands; a single one is its result",
    "primitive": "one operation of a processor for each element: exact, or rounded once",
    "commutative": "its operands may change places",
    "comparison": "compares elements in order",
    "classifying": "tells which elements are NaN, or infinite",
    "ring": "sums, differences and products, exact on integers modulo a power of two",
    "stepped": "a small change of an operand may change the result by a step",
    "costly": "takes several instructions for each element, so that kernels compute it once",
    "long": "takes many instructions for each element",
    "circular": "sine, cosine, tangent, their hyperbolic forms and inverses",
    "reduction": "reduces axes to one element",
    "arg_reduction": "position of the extreme element along an axis",
    "running": "accumulates along an axis and keeps all steps",
    "pool": "reduces each window of an image",
    "global_pool": "reduces each image to one element per channel",
    "convolution": "products of windows with weights, of floating point",
    "matmul": "matrix product of floating point",
    "integer_product": "convolution or matrix product of integers with zero points",
    "quantized_product": "convolution or matrix product of integers with scales and zero points",
    "matrix_product": "matrix product of elements of any type",
    "contraction": "sums products of its operands along axes of its own choice",
    "summing": "makes each element of several, along an axis or in a window, in a way of its own",
    "softmax": "softmax, its logarithm, or a one at its maximum",
    "norm": "normalizes by statistics, computed or given",
    "row_norm": "normalizes over an axis and all behind it",
    "loss": "compares scores of classes with labels",
    "recurrent": "runs a cell over a sequence",
    "indexed": "its second operand holds indices into the first; negative ones count from the end",
    "scattering": "writes elements at the indices in its second operand",
    "quantizing": "converts between real numbers and integers with a scale",
    "quantized": "makes integers that stand for real numbers, by a scale",
    "size": "reads the sizes of its operand, not its elements",
    "counting": "the values of its operands decide how large its result is",
    "positional": "its results hold sizes or positions of elements",
    "picking": "its first result holds elements of its operand, its others sizes or positions",
    "endless": "may take for ever on little data, by the values of it: numbers of samples, patterns, trees, all pairs of boxes",
    "filling": "makes elements of a first operand without any",
    "random": "draws random numbers",
    "moving": "moves or describes data without arithmetic",
    "copying": "each element of its results is one of its first operand, or of its operands",
    "view": "its results may be views of its first operand",
    "forwarding": "returns its first operand, outside of training",
    "casting": "converts elements to another type",
    "repeating": "repeats elements",
    "shuffle": "exchanges channels and pixels",
    "resizing": "samples an image anew at another size",
    "reshape": "keeps the order of elements and changes the shape",
    "same_shape": "its first result has the shape of its first operand, whatever the others are",
    "typed": "the type of its result tells all that its operands but the first do",
    "propagated": "quantizing moves past it: in onnxruntime's optimizer, and in plans of int8",
    "reading": "costs as much as it reads, not as much as it makes",
    "unchecked": "sizes of its operands have to go together that not all engines compare",
}
"""The traits and their meanings."""

ROWS = """
Abs                       unary primitive
Acos                      unary circular
Acosh                     unary circular
Add                       broadcast primitive commutative ring
AffineGrid                moving
And                       broadcast primitive commutative
ArgMax                    arg_reduction positional
ArgMin                    arg_reduction positional
Asin                      unary circular
Asinh                     unary circular
Atan                      unary circular
Atanh                     unary circular
Attention                 contraction summing unchecked
AveragePool               pool
BatchNormalization        norm
Bernoulli                 random same_shape
BitCast                   unary primitive
BitShift                  broadcast primitive
BitwiseAnd                broadcast primitive commutative
BitwiseNot                unary primitive
BitwiseOr                 broadcast primitive commutative
BitwiseXor                broadcast primitive commutative
Cast                      unary primitive stepped moving casting
CastLike                  moving casting same_shape
Ceil                      unary primitive stepped
Celu                      unary costly long
CenterCropPad             moving filling
Clip                      broadcast
Col2Im                    moving summing
Compress                  counting moving
Concat                    moving copying variadic filling unchecked
ConcatFromSequence        moving
Constant                  moving
ConstantOfShape           moving filling
Conv                      convolution unchecked
ConvInteger               integer_product unchecked
ConvTranspose             convolution unchecked
Cos                       unary costly circular
Cosh                      unary circular
CumProd                   running same_shape reading
CumSum                    running same_shape reading
DFT                       summing
DeformConv                summing unchecked
DepthToSpace              moving copying shuffle
DequantizeLinear          quantizing unchecked
Div                       broadcast primitive costly
Dropout                   random moving forwarding same_shape
DynamicQuantizeLinear     summing quantized same_shape
Einsum                    contraction summing
Elu                       unary costly long
Equal                     broadcast primitive comparison commutative stepped
Erf                       unary costly long
Exp                       unary costly long
Expand                    moving copying view repeating typed
EyeLike                   moving
Flatten                   reshape moving copying view typed propagated
Floor                     unary primitive stepped
GRU                       recurrent unchecked
Gather                    indexed moving copying view
GatherElements            indexed moving unchecked
GatherND                  indexed moving unchecked
Gelu                      unary costly long
Gemm                      matmul matrix_product unchecked
GlobalAveragePool         global_pool
GlobalLpPool              global_pool
GlobalMaxPool             global_pool
Greater                   broadcast primitive comparison stepped
GreaterOrEqual            broadcast primitive comparison stepped
GridSample                summing unchecked
GroupNormalization        norm
HardSigmoid               unary
HardSwish                 unary costly
Hardmax                   softmax reading
Identity                  moving copying view forwarding same_shape
If                        moving filling
InstanceNormalization     norm
IsInf                     unary primitive stepped classifying
IsNaN                     unary primitive stepped classifying
LRN                       norm
LSTM                      recurrent unchecked
LayerNormalization        norm row_norm
LeakyRelu                 unary
Less                      broadcast primitive comparison stepped
LessOrEqual               broadcast primitive comparison stepped
Log                       unary costly long
LogSoftmax                softmax
Loop                      moving filling
LpNormalization           norm
LpPool                    pool
MatMul                    matmul matrix_product unchecked
MatMulInteger             integer_product matrix_product unchecked
MatMulNBits               matrix_product
Max                       broadcast commutative variadic
MaxPool                   pool propagated
MaxRoiPool                summing reading
MaxUnpool                 summing
Mean                      broadcast commutative variadic
MeanVarianceNormalization norm
Min                       broadcast commutative variadic
Mish                      unary costly long
Mod                       broadcast primitive stepped costly
Mul                       broadcast primitive commutative ring
Multinomial               random
Neg                       unary primitive ring
NegativeLogLikelihoodLoss summing loss unchecked
NonMaxSuppression         counting positional endless
NonZero                   counting moving positional
Not                       unary primitive
OneHot                    moving
Optional                  moving
OptionalGetElement        moving
OptionalHasElement        moving
Or                        broadcast primitive commutative
PRelu                     broadcast unchecked
Pad                       moving filling
Pow                       broadcast
QLinearAdd                quantized
QLinearAveragePool        quantized
QLinearConcat             quantized
QLinearConv               quantized_product quantized unchecked
QLinearGlobalAveragePool  quantized
QLinearLeakyRelu          quantized
QLinearMatMul             quantized_product matrix_product quantized unchecked
QLinearMul                quantized
QLinearReduceMean         quantized
QLinearSigmoid            quantized
QLinearSoftmax            quantized
QLinearWhere              quantized
QuantizeLinear            quantizing quantized unchecked
RMSNormalization          norm row_norm
RNN                       recurrent unchecked
RandomNormal              random
RandomNormalLike          random same_shape
RandomUniform             random
RandomUniformLike         random same_shape
Range                     moving
Reciprocal                unary costly
ReduceL1                  reduction
ReduceL2                  reduction
ReduceLogSum              reduction
ReduceLogSumExp           reduction
ReduceMax                 reduction
ReduceMean                reduction
ReduceMin                 reduction
ReduceProd                reduction
ReduceSum                 reduction
ReduceSumSquare           reduction
RegexFullMatch            endless
Relu                      unary
Reshape                   reshape moving copying view typed propagated
Resize                    resizing
ReverseSequence           moving same_shape
RoiAlign                  summing endless
RotaryEmbedding           same_shape
Round                     unary stepped
STFT                      summing
Scan                      filling
Scatter                   indexed moving scattering same_shape unchecked
ScatterElements           indexed moving scattering same_shape unchecked
ScatterND                 indexed moving scattering same_shape unchecked
Selu                      unary costly long
SequenceAt                moving
SequenceConstruct         moving
SequenceEmpty             moving
SequenceErase             moving
SequenceInsert            moving
SequenceLength            moving
Shape                     size moving positional filling
Shrink                    unary
Sigmoid                   unary costly long
Sign                      unary
SimplifiedLayerNormalization row_norm
Sin                       unary costly circular
Sinh                      unary circular
Size                      size moving positional filling
Slice                     moving copying view propagated
Softmax                   softmax
SoftmaxCrossEntropyLoss   summing loss unchecked
Softplus                  unary costly long
Softsign                  unary costly
SpaceToDepth              moving copying shuffle
Split                     moving copying view typed
SplitToSequence           moving
Sqrt                      unary costly
Squeeze                   reshape moving copying view typed propagated
StringConcat              moving
StringNormalizer          moving
StringSplit               counting moving
Sub                       broadcast primitive ring
Sum                       broadcast commutative ring variadic
Swish                     unary costly long
Tan                       unary circular
Tanh                      unary costly long
TensorScatter             moving same_shape
TfIdfVectorizer           endless
ThresholdedRelu           unary
Tile                      moving copying repeating
TopK                      picking reading
Transpose                 moving copying view propagated
TreeEnsemble              endless
TreeEnsembleClassifier    endless
TreeEnsembleRegressor     endless
Trilu                     moving same_shape
Unique                    counting moving picking
Unsqueeze                 reshape moving copying view typed propagated
Upsample                  moving resizing
Where                     broadcast primitive moving
Xor                       broadcast primitive commutative
"""


FILTERS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "DeformConv": 1, "QLinearConv": 3}
"""For each convolution, the input that holds its filters."""

ONNX_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training")
"""The domains whose ops are all known; an unknown op in any other domain may belong to an engine."""

_declared: dict[tuple[str, str], frozenset[str]] = {}
"""The traits of users' ops, by domain and op."""


@cache
def _table() -> dict[str, frozenset[str]]:
    return {name: frozenset(words) for name, *words in map(str.split, ROWS.strip().splitlines())}


def traits(op: str, domain: str = "") -> frozenset[str]:
    """The traits of an op: those that `register_op` was given, else those of its row for ONNX's domains; or none."""
    listed = _table().get(op, frozenset()) if domain in ONNX_DOMAINS else frozenset()
    return _declared.get((domain, op)) or listed


@cache
def ops(*wanted: str) -> frozenset[str]:
    """The names in the table that have at least one of these traits; users' ops are not among them."""
    unknown = set(wanted) - TRAITS.keys()
    if unknown:
        raise KeyError(f"unknown traits: {', '.join(sorted(unknown))}")
    return frozenset(name for name, has in _table().items() if not has.isdisjoint(wanted))


def declare(op: str, domain: str, given: frozenset[str]) -> None:
    """Set the traits of a user's op."""
    unknown = sorted(given - TRAITS.keys())
    if unknown:
        near = did_you_mean(unknown[0], TRAITS) or ""
        raise GraphError(
            f"{unknown[0]!r} is not a trait of ops",
            where=f"op {domain}.{op}",
            remedy=f"{near} The traits are {', '.join(sorted(TRAITS))}".strip(),
        )
    _declared[domain, op] = given
