"""Traits of ONNX's ops, one row per op. A list of ops anywhere in the product is a query of this table."""

from __future__ import annotations

from functools import cache

TRAITS = {
    "unary": "applies a function to each element of its first operand",
    "broadcast": "combines elements of operands that are broadcast to one shape",
    "primitive": "one operation of a processor for each element: exact, or rounded once",
    "commutative": "its operands may change places",
    "comparison": "compares elements in order",
    "ring": "sums, differences and products, exact on integers modulo a power of two",
    "stepped": "a small change of an operand may change the result by a step",
    "costly": "takes several instructions for each element, so that kernels compute it once",
    "long": "takes many instructions for each element",
    "reduction": "reduces axes to one element",
    "arg_reduction": "position of the extreme element along an axis",
    "pool": "reduces each window of an image",
    "global_pool": "reduces each image to one element per channel",
    "convolution": "products of windows with weights, of floating point",
    "matmul": "matrix product of floating point",
    "integer_product": "convolution or matrix product of integers with zero points",
    "softmax": "softmax, its logarithm, or a one at its maximum",
    "norm": "normalizes by statistics, computed or given",
    "recurrent": "runs a cell over a sequence",
    "indexed": "its second operand holds indices into the first",
    "quantizing": "converts between real numbers and integers with a scale",
    "size": "reads the sizes of its operand, not its elements",
    "counting": "the values of its operands decide how large its result is",
    "random": "draws random numbers",
    "moving": "moves or describes data without arithmetic",
    "copying": "each element of its results is one of its first operand, or of its operands",
    "reshape": "keeps the order of elements and changes the shape",
}
"""The traits and their meanings."""

_ROWS = """
Abs                       unary primitive
Acos                      unary
Acosh                     unary
Add                       broadcast primitive commutative ring
AffineGrid                moving
And                       broadcast primitive commutative
ArgMax                    arg_reduction
ArgMin                    arg_reduction
Asin                      unary
Asinh                     unary
Atan                      unary
Atanh                     unary
AveragePool               pool
BatchNormalization        norm
Bernoulli                 random
BitCast                   unary primitive
BitShift                  broadcast primitive
BitwiseAnd                broadcast primitive commutative
BitwiseNot                unary primitive
BitwiseOr                 broadcast primitive commutative
BitwiseXor                broadcast primitive commutative
Cast                      unary primitive stepped moving
CastLike                  moving
Ceil                      unary primitive stepped
Celu                      unary costly long
CenterCropPad             moving
Clip                      broadcast
Col2Im                    moving
Compress                  counting moving
Concat                    moving copying
ConcatFromSequence        moving
Constant                  moving
ConstantOfShape           moving
Conv                      convolution
ConvInteger               integer_product
ConvTranspose             convolution
Cos                       unary costly
Cosh                      unary
DepthToSpace              moving copying
DequantizeLinear          quantizing
Div                       broadcast primitive costly
Dropout                   random moving
Elu                       unary costly long
Equal                     broadcast primitive comparison commutative stepped
Erf                       unary costly long
Exp                       unary costly long
Expand                    moving copying
EyeLike                   moving
Flatten                   reshape moving copying
Floor                     unary primitive stepped
GRU                       recurrent
Gather                    indexed moving copying
GatherElements            indexed moving
GatherND                  indexed moving
Gelu                      unary costly long
Gemm                      matmul
GlobalAveragePool         global_pool
GlobalLpPool              global_pool
GlobalMaxPool             global_pool
Greater                   broadcast primitive comparison stepped
GreaterOrEqual            broadcast primitive comparison stepped
GroupNormalization        norm
HardSigmoid               unary
HardSwish                 unary costly
Hardmax                   softmax
Identity                  moving copying
If                        moving
InstanceNormalization     norm
IsInf                     unary primitive stepped
IsNaN                     unary primitive stepped
LRN                       norm
LSTM                      recurrent
LayerNormalization        norm
LeakyRelu                 unary
Less                      broadcast primitive comparison stepped
LessOrEqual               broadcast primitive comparison stepped
Log                       unary costly long
LogSoftmax                softmax
Loop                      moving
LpNormalization           norm
LpPool                    pool
MatMul                    matmul
MatMulInteger             integer_product
Max                       broadcast commutative
MaxPool                   pool
Mean                      broadcast commutative
MeanVarianceNormalization norm
Min                       broadcast commutative
Mish                      unary costly long
Mod                       broadcast primitive stepped costly
Mul                       broadcast primitive commutative ring
Multinomial               random
Neg                       unary primitive ring
NonMaxSuppression         counting
NonZero                   counting moving
Not                       unary primitive
OneHot                    moving
Optional                  moving
OptionalGetElement        moving
OptionalHasElement        moving
Or                        broadcast primitive commutative
PRelu                     broadcast
Pad                       moving
Pow                       broadcast
QuantizeLinear            quantizing
RMSNormalization          norm
RNN                       recurrent
RandomNormal              random
RandomNormalLike          random
RandomUniform             random
RandomUniformLike         random
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
Relu                      unary
Reshape                   reshape moving copying
ReverseSequence           moving
Round                     unary stepped
Scatter                   indexed moving
ScatterElements           indexed moving
ScatterND                 indexed moving
Selu                      unary costly long
SequenceAt                moving
SequenceConstruct         moving
SequenceEmpty             moving
SequenceErase             moving
SequenceInsert            moving
SequenceLength            moving
Shape                     size moving
Shrink                    unary
Sigmoid                   unary costly long
Sign                      unary
Sin                       unary costly
Sinh                      unary
Size                      size moving
Slice                     moving copying
Softmax                   softmax
Softplus                  unary costly long
Softsign                  unary costly
SpaceToDepth              moving copying
Split                     moving copying
SplitToSequence           moving
Sqrt                      unary costly
Squeeze                   reshape moving copying
StringConcat              moving
StringNormalizer          moving
StringSplit               counting moving
Sub                       broadcast primitive ring
Sum                       broadcast commutative ring
Swish                     unary costly long
Tan                       unary
Tanh                      unary costly long
TensorScatter             moving
ThresholdedRelu           unary
Tile                      moving copying
Transpose                 moving copying
Trilu                     moving
Unique                    counting moving
Unsqueeze                 reshape moving copying
Upsample                  moving
Where                     broadcast primitive moving
Xor                       broadcast primitive commutative
"""


@cache
def _table() -> dict[str, frozenset[str]]:
    return {name: frozenset(words) for name, *words in map(str.split, _ROWS.strip().splitlines())}


def traits(op: str) -> frozenset[str]:
    """The traits of an op of ONNX's own domain; empty for other names."""
    return _table().get(op, frozenset())


@cache
def ops(*wanted: str) -> frozenset[str]:
    """The ops of ONNX's own domain that have at least one of these traits."""
    unknown = set(wanted) - TRAITS.keys()
    if unknown:
        raise KeyError(f"unknown traits: {', '.join(sorted(unknown))}")
    return frozenset(name for name, has in _table().items() if not has.isdisjoint(wanted))
