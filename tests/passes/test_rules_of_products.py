"""The rules of ops that contract or slide a window."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.reading import Cases, check, of

ROWS = ("N", 5)
IMAGE = ("N", 6, "H", 9)
FILTERS = (8, 6, 3, 3)
QUERY = ("N", 4, "S", 8)

CASES: Cases = {
    "MatMul": [
        (of(ROWS, (5, 7)), "[N, 7]"),
        (of(ROWS, ("K", 7)), "[N, 7] where 5 == K"),
        (of((5,), (5, 7)), "[7]"),
        (of(ROWS, (5,)), "[N]"),
        (of((5,), (5,)), "[]"),
        (of((2, 3, 4, 5), (3, 5, 7)), "[2, 3, 4, 7]"),
        (of(("B", 4, 5), ("C", 5, 7)), "[broadcast(B, C), 4, 7] where B broadcasts to C"),
        (of(ROWS, (4, 7)), "the depths of both matrices do not go together: 5 and 4"),
        (of((), (5,)), "the rank of a matrix and 1 do not go together: 0 is less than 1"),
        (of(("B", 4, 5), (5,)), "[B, 4]"),
        (of((5,), ("B", 5, 7)), "[B, 7]"),
        (of((2, 4, 5), (3, 5, 7)), "the batches of both matrices do not go together: 2 and 3"),
    ],
    "MatMulInteger": [
        (of(ROWS, (5, 7), (), ()), "[N, 7]"),
        (of(ROWS, (5, 7), ("N",), (7,)), "[N, 7]"),
        (of(ROWS, (5, 7), ("K",), ("L",)), "[N, 7] where K 1 or == N, L 1 or == 7"),
        (of(ROWS, (5, 7), (4,)), "[4, 7] where 4 == N"),
        (
            of(ROWS, (5, 7), None, (6,)),
            "the number of scales or zero points and the lines of the matrix do not go together: 6 and 7",
        ),
        (of(("B", 4, 5), ("B", 5, 7), ("B", 4, 1), ("B", 1, 7)), "[B, 4, 7]"),
        (
            of(("B", 4, 5), ("B", 5, 7), (4, 5)),
            "the number of scales or zero points and the lines of the matrix do not go together: 5 and 1",
        ),
        (
            of(("B", 4, 5), ("B", 5, 7), None, (5, 7)),
            "the number of scales or zero points and the lines of the matrix do not go together: 5 and 1",
        ),
        (of((5,), (5, 7), (2,)), "the number of scales or zero points and the lines of the matrix do not go together: 2 and 1"),
        (of((5,), (5, 7), (1,)), "[7]"),
    ],
    "QLinearMatMul": [
        (of(ROWS, (), (), (5, 7), (), (), (), ()), "[N, 7]"),
        (of(ROWS, ("N",), ("K",), (5, 7), (7,), (7,), (), ()), "[N, 7] where K 1 or == N"),
        (
            of(ROWS, (), (), (5, 7), (6,), (), (), ()),
            "the number of scales or zero points and the lines of the matrix do not go together: 6 and 7",
        ),
        (
            of(ROWS, (), (), (5, 7), (), (6,), (), ()),
            "the number of scales or zero points and the lines of the matrix do not go together: 6 and 7",
        ),
        (
            of((4, 5), (), (3,), (5, 7), (), (), (), ()),
            "the number of scales or zero points and the lines of the matrix do not go together: 3 and 4",
        ),
        (
            of((4, 5), (3,), (), (5, 7), (), (), (), ()),
            "the number of scales or zero points and the lines of the matrix do not go together: 3 and 4",
        ),
        (of(ROWS, (), (), (4, 7), (), (), (), ()), "the depths of both matrices do not go together: 5 and 4"),
    ],
    "Gemm": [
        (of(ROWS, (5, 7)), "[N, 7]"),
        (of((5, "N"), (7, 5), transA=1, transB=1), "[N, 7]"),
        (of(ROWS, (5, 7), (7,)), "[N, 7]"),
        (of(ROWS, (5, 7), ("N", 1)), "[N, 7]"),
        (of(ROWS, (5, 7), ("M", 7)), "[N, 7] where M 1 or == N"),
        (of(ROWS, (5, 7), (6,)), "the sizes of the bias and of the product do not go together: 6 and 7"),
        (
            of(ROWS, (5, 7), ("N", 7, 1)),
            "the ranks of the sizes of the bias and of the product do not go together: 2 is less than 3",
        ),
        (of(ROWS, (4, 7)), "the depths of both matrices do not go together: 5 and 4"),
        (of(ROWS, (5, 7), transB=1), "the depths of both matrices do not go together: 5 and 7"),
        (of((5,), (5, 7)), "the rank of the first matrix and 2 do not go together: 1 and 2"),
        (of(ROWS, (5,)), "the rank of the second matrix and 2 do not go together: 1 and 2"),
    ],
    "Einsum": [
        (of(("B", "I", 4), ("B", 4, "J"), equation="bij,bjk->bik"), "[B, I, J]"),
        (of(("B", "I", 4), ("C", 4, "J"), equation="bij,bjk"), "[I, J] where B broadcasts to C"),
        (of(ROWS, equation="ij->ji"), "[5, N]"),
        (of(ROWS, equation="ii"), "[] where N broadcasts to 5"),
        (of((3, 3), equation="ii->i"), "[3]"),
        (of(("B", "C", 3, 4), (4, 5), equation="...ij,jk->...ik"), "[B, C, 3, 5]"),
        (of(("B", 3, 4), ("C", "B", 4, 5), equation="...ij,...jk"), "[C, B, 3, 5]"),
        (of(ROWS, ROWS, equation="ij"), "the terms of the equation and the inputs do not go together: 1 and 2"),
        (of(ROWS, equation="ijk"), "the rank of an input and the letters of its term do not go together: 2 and 3"),
        (
            of(ROWS, equation="i...jk->i"),
            "the rank of an input and the letters of its term do not go together: 2 is less than 3",
        ),
        (of(("B", 3, 4), equation="i...j->ji"), "[4, B]"),
        (of(ROWS, (4, 7), equation="ij,jk->ik"), "the sizes of 'j' do not go together: 5 and 4"),
        (of((3, 4, 5), equation="...j->..."), "[3, 4]"),
        (of(("B", 3, 4), equation="i...j"), "[3, B, 4]"),
        (of(ROWS, equation=" i j -> j "), "[5]"),
    ],
    "Conv": [
        (of(IMAGE, FILTERS), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, FILTERS, (8,)), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, FILTERS, (7,)), "the sizes of the bias and of what it is added to do not go together: 7 and 8"),
        (of(IMAGE, (8, 3, 3, 3), group=2), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, (9, 3, 3, 3), group=2), "the filters and the groups that they are divided into do not go together: 8 and 9"),
        (of(IMAGE, (8, 2, 3, 3), group=2), "the channels of the data and of the weights do not go together: 6 and 4"),
        (of(IMAGE, FILTERS, group=0), "the number of groups and 1 do not go together: 0 is less than 1"),
        (of(IMAGE, FILTERS, kernel_shape=[3, 3]), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (
            of(IMAGE, FILTERS, kernel_shape=[3, 2]),
            "the taps of the weights and those that are stated do not go together: 3 and 2",
        ),
        (of(IMAGE, (8, 6, 3)), "the ranks of the weights and of the data do not go together: 3 and 4"),
        (of(IMAGE, (8, 6, 0, 3)), "a tap of the weights and 1 do not go together: 0 is less than 1"),
        (of(IMAGE, FILTERS, strides=[2, 3]), "[N, 8, (H + 1)//2 - 1, 3] where H - 3 >= 0"),
        (of(IMAGE, FILTERS, dilations=[2, 3]), "[N, 8, H - 4, 3] where H - 5 >= 0"),
        (of(IMAGE, FILTERS, pads=[1, 2, 3, 4]), "[N, 8, H + 2, 13]"),
        (
            of(IMAGE, FILTERS, pads=[1, 2, 3]),
            "the number of paddings and twice that of the dimensions do not go together: 3 and 4",
        ),
        (of(IMAGE, FILTERS, strides=[2]), "the number of strides and of dimensions do not go together: 1 and 2"),
        (of(IMAGE, FILTERS, dilations=[2]), "the number of dilations and of dimensions do not go together: 1 and 2"),
        (of(IMAGE, FILTERS, auto_pad="SAME_UPPER", strides=[2, 2]), "[N, 8, (H + 1)//2, 5]"),
        (of(IMAGE, FILTERS, auto_pad="VALID", pads=[1, 1, 1, 1]), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, (8, 6, 3, 9)), "[N, 8, H - 2, 1] where H - 3 >= 0"),
        (of(IMAGE, (8, 6, 3, 10)), "the padded data and the window do not go together: -1 is less than 0"),
        (of(IMAGE, (8, 6, 3, 10), pads=[0, 0, 0, 1]), "[N, 8, H - 2, 1] where H - 3 >= 0"),
        (of(("N", "C", "H", 9), FILTERS), "[N, 8, H - 2, 7] where C == 6, H - 3 >= 0"),
    ],
    "ConvInteger": [
        (of(IMAGE, FILTERS, (), (8,)), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, FILTERS, (), (7,)), "the number of scales or zero points and of filters do not go together: 7 and 8"),
        (of(IMAGE, FILTERS, (), ("K",)), "[N, 8, H - 2, 7] where K 1 or == 8, H - 3 >= 0"),
        (of(IMAGE, FILTERS, (2,)), "the size of input 2 and that of a single number do not go together: 2 and 1"),
        (of(IMAGE, FILTERS, None, (1,)), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (of(IMAGE, FILTERS), "[N, 8, H - 2, 7] where H - 3 >= 0"),
    ],
    "QLinearConv": [
        (of(IMAGE, (), (), FILTERS, (8,), (8,), (), (), (8,)), "[N, 8, H - 2, 7] where H - 3 >= 0"),
        (
            of(IMAGE, (), (), FILTERS, (7,), (), (), ()),
            "the number of scales or zero points and of filters do not go together: 7 and 8",
        ),
        (
            of(IMAGE, (), (), FILTERS, (), (7,), (), ()),
            "the number of scales or zero points and of filters do not go together: 7 and 8",
        ),
        (
            of(IMAGE, (2,), (), FILTERS, (), (), (), ()),
            "the size of input 1 and that of a single number do not go together: 2 and 1",
        ),
        (
            of(IMAGE, (), (2,), FILTERS, (), (), (), ()),
            "the size of input 2 and that of a single number do not go together: 2 and 1",
        ),
        (
            of(IMAGE, (), (), FILTERS, (), (), (2,), ()),
            "the size of input 6 and that of a single number do not go together: 2 and 1",
        ),
        (
            of(IMAGE, (), (), FILTERS, (), (), (), (2,)),
            "the size of input 7 and that of a single number do not go together: 2 and 1",
        ),
        (
            of(IMAGE, (), (), FILTERS, (), (), (), (), (7,)),
            "the sizes of the bias and of what it is added to do not go together: 7 and 8",
        ),
        (of(IMAGE, (), (), (8, 3, 3, 3), (), (), (), (), group=2), "[N, 8, H - 2, 7] where H - 3 >= 0"),
    ],
    "MaxPool": [
        (of(IMAGE, kernel_shape=[3, 3]), "[N, 6, H - 2, 7] where H - 3 >= 0 if H - 3 >= 0"),
        (of(IMAGE, kernel_shape=[3, 3], results=2), "[N, 6, H - 2, 7] [N, 6, H - 2, 7] where H - 3 >= 0 if H - 3 >= 0"),
        (of(IMAGE, kernel_shape=[3]), "the dimensions of the window and of the data do not go together: 1 and 2"),
        (of((1, 1, 5), kernel_shape=[2], strides=[2]), "[1, 1, 2]"),
        (of((1, 1, 5), kernel_shape=[2], strides=[2], ceil_mode=1), "[1, 1, 3]"),
        (of((1, 1, 6), kernel_shape=[2], strides=[2], ceil_mode=1), "[1, 1, 3]"),
        (of((1, 1, 5), kernel_shape=[2], strides=[3], ceil_mode=1, pads=[0, 1]), "[1, 1, 2]"),
        (of((1, 1, 6), kernel_shape=[1], strides=[3], ceil_mode=1, pads=[0, 1]), "[1, 1, 2]"),
        (of((1, 1, 7), kernel_shape=[1], strides=[3], ceil_mode=1, pads=[0, 1]), "[1, 1, 3]"),
        (of((1, 1, 6), kernel_shape=[1], strides=[3], ceil_mode=1, pads=[1, 0]), "[1, 1, 3]"),
        (of((1, 1, 6), kernel_shape=[1], strides=[3], ceil_mode=1, pads=[1, 1]), "[1, 1, 3]"),
        (of((1, 1, 3), kernel_shape=[4]), "[1, 1, 0]"),
        (of((1, 1, 3), kernel_shape=[4], strides=[2]), "[1, 1, 1]"),
        (of((1, 1, 2), kernel_shape=[4], strides=[2]), "[1, 1, 0]"),
        (of((1, 1, 1), kernel_shape=[4], strides=[2]), "[1, 1, 0]"),
        (of((1, 1, 0), kernel_shape=[4], strides=[2]), "the padded data and the window do not go together: -4 is less than -3"),
        (of((1, 1, 3), kernel_shape=[4], ceil_mode=1), "the padded data and the window do not go together: -1 is less than 0"),
        (of((1, 1, 3), kernel_shape=[4], strides=[2], ceil_mode=1), "[1, 1, 1]"),
        (
            of((1, 1, 2), kernel_shape=[4], strides=[2], ceil_mode=1),
            "the padded data and the window do not go together: -2 is less than -1",
        ),
        (of((1, 1, 9), kernel_shape=[3], strides=[2], auto_pad="SAME_LOWER", ceil_mode=1), "[1, 1, 5]"),
        (of((1, 1, 8), kernel_shape=[3], strides=[2], auto_pad="VALID", ceil_mode=1), "[1, 1, 3]"),
        (of((1, 1, 8), kernel_shape=[3], strides=[2], dilations=[3]), "[1, 1, 1]"),
        (
            of((1, 1, 2), kernel_shape=[3], auto_pad="VALID"),
            "the padded data and the window do not go together: -1 is less than 0",
        ),
        (of((1, 1, "L"), kernel_shape=[3], strides=[2], ceil_mode=1), "[1, 1, (L)//2] where L - 3 >= -1"),
        (of((1, 1, "L"), kernel_shape=[3], strides=[2]), "[1, 1, (L + 1)//2 - 1] where L - 3 >= 0 if L - 3 >= 0"),
        (of((1, 1, "L"), kernel_shape=[3], auto_pad="VALID"), "[1, 1, L - 2] where L - 3 >= 0"),
    ],
    "GlobalAveragePool": [
        (of(IMAGE), "[N, 6, 1, 1]"),
        (of((1, 2)), "[1, 2]"),
        (of((1, 2, 3)), "[1, 2, 1]"),
        (of((1, 2, 0)), "[1, 2, 1]"),
    ],
    "GlobalMaxPool": [
        (of(IMAGE), "[N, 6, 1, 1] where H >= 1"),
        (of((1, 2, 3, 0)), "a dimension and what the largest is taken of do not go together: 0 is less than 1"),
        (of((0, 2, 3)), "[0, 2, 1]"),
    ],
    "STFT": [
        (of(("N", 16, 1), 4, None, 8), "[N, 3, 5, 2]"),
        (of(("N", 16, 1), 4, None, 8, onesided=0), "[N, 3, 8, 2]"),
        (of((2, "L"), 3, (8,)), "[2, (L + 1)//3 - 2, 5, 2] where L >= 8"),
        (of((2, 16, 1), (), None, 8), "?"),
        (of((2, 16, 1), 4, (6,), 8), "the sizes of the window and of a frame do not go together: 6 and 8"),
        (of((2, 16, 1), 0, None, 8), "the step of the frames and 1 do not go together: 0 is less than 1"),
        (of((2, 16, 1), 4, None, 0), "the length of a frame and 1 do not go together: 0 is less than 1"),
        (of((2, 16, 1), 4, None, 17), "the signal and a frame do not go together: 16 is less than 17"),
    ],
    "ConvTranspose": [
        (of(IMAGE, (6, 8, 3, 3)), "[N, 8, H + 2, 11]"),
        (of(IMAGE, (6, 4, 3, 3), (8,), group=2), "[N, 8, H + 2, 11]"),
        (
            of(IMAGE, (6, 4, 3, 3), (4,), group=2),
            "the sizes of the bias and of what it is added to do not go together: 4 and 8",
        ),
        (of(IMAGE, (5, 8, 3, 3)), "the channels of the data and of the weights do not go together: 6 and 5"),
        (
            of(IMAGE, (6, 4, 3, 3), group=4),
            "the channels and the groups that they are divided into do not go together: 4 and 6",
        ),
        (of(IMAGE, (6, 8, 3, 3), strides=[2, 3]), "[N, 8, 2*H + 1, 27]"),
        (of(IMAGE, (6, 8, 3, 3), dilations=[2, 3], pads=[1, 2, 3, 4]), "[N, 8, H, 9]"),
        (of(IMAGE, (6, 8, 3, 3), output_padding=[1, 0], strides=[2, 2]), "[N, 8, 2*H + 2, 19]"),
        (of(IMAGE, (6, 8, 3, 3), output_shape=[20, 21]), "[N, 8, 20, 21]"),
        (of(IMAGE, (6, 8, 3, 3), output_shape=[1, 8, 20, 21]), "[N, 8, 20, 21]"),
        (
            of(IMAGE, (6, 8, 3, 3), output_shape=[20]),
            "the numbers of output_shape and the dimensions do not go together: 1 and 2",
        ),
        (
            of(IMAGE, (6, 8, 3, 3), output_padding=[1]),
            "the number of output paddings and of dimensions do not go together: 1 and 2",
        ),
        (of(IMAGE, (6, 8, 3, 3), auto_pad="SAME_UPPER", strides=[2, 3]), "[N, 8, 2*H, 27]"),
        (of(IMAGE, (6, 8, 3, 3), auto_pad="SAME_UPPER", strides=[2, 4]), "[N, 8, 2*H, 35]"),
        (of(IMAGE, (6, 8, 2, 2), auto_pad="SAME_LOWER", strides=[3, 3], dilations=[2, 2]), "[N, 8, 3*H, 27]"),
        (of(IMAGE, (6, 8, 2, 2), auto_pad="SAME_LOWER", strides=[4, 3], dilations=[2, 2]), "[N, 8, max(0, 4*H - 1), 27]"),
        (of((1, 6, 2), (6, 8, 3), pads=[2, 2]), "[1, 8, 0]"),
        (of((1, 6, 2), (6, 8, 3), pads=[2, 3]), "the result and nothing do not go together: -1 is less than 0"),
        (of(("N", 6, "L"), (6, 8, 1), pads=[1, 1]), "[N, 8, L - 2] where L - 2 >= 0"),
        (of(IMAGE, (6, 8, 3, 3), auto_pad="SAME_UPPER", output_padding=[0, 1], strides=[2, 2]), "[N, 8, 2*H, 18]"),
        (of(IMAGE, (6, 8, 3, "K"), auto_pad="SAME_UPPER"), "[N, 8, H, min(9, K + 8)] where K >= 1"),
        (of(IMAGE, (6, 8, 3, 2), auto_pad="SAME_UPPER", strides=[1, 3]), "[N, 8, H, 26]"),
    ],
    "DeformConv": [
        (of((1, 6, 9, 9), (8, 6, 3, 3), (1, 18, 7, 7)), "[1, 8, 7, 7]"),
        (of((1, 6, 9, 9), (8, 3, 3, 3), (1, 36, 7, 7), (8,), (1, 18, 7, 7), group=2, offset_group=2), "[1, 8, 7, 7]"),
        (
            of((1, 6, 9, 9), (8, 6, 3, 3), (1, 17, 7, 7)),
            "the sizes of the offsets and those that the windows have do not go together: 17 and 18",
        ),
        (
            of((1, 6, 9, 9), (8, 6, 3, 3), (2, 18, 7, 7)),
            "the sizes of the offsets and those that the windows have do not go together: 2 and 1",
        ),
        (
            of((1, 6, 9, 9), (8, 6, 3, 3), (1, 18, 7, 7), None, (1, 8, 7, 7)),
            "the sizes of the mask and those that the windows have do not go together: 8 and 9",
        ),
        (
            of((1, 6, 9, 9), (8, 6, 3, 3), (1, 18, 7, 7), (7,)),
            "the sizes of the bias and of what it is added to do not go together: 7 and 8",
        ),
        (
            of((1, 6, 9, 9), (9, 3, 3, 3), (1, 18, 7, 7), group=2),
            "the filters and the groups that they are divided into do not go together: 8 and 9",
        ),
        (
            of((1, 6, 9, 9), (8, 6, 3, 3), (1, 72, 7, 7), offset_group=4),
            "the channels and the groups of offsets do not go together: 4 and 6",
        ),
        (
            of((1, 6, 9, 9), (8, 3, 3, 3), (1, 18, 7, 7)),
            "the channels of the data and of the weights do not go together: 6 and 3",
        ),
        (of(("N", 6, 9, 9), (8, 6, 3, 3), ("M", 18, 7, 7)), "[M, 8, 7, 7] where M == N"),
    ],
    "MaxUnpool": [
        (of((1, 2, 3), (1, 2, 3), kernel_shape=[2], strides=[2]), "[1, 2, 6]"),
        (
            of((1, 2, 3), (1, 2, 4), kernel_shape=[2], strides=[2]),
            "the sizes of the indices and of the data do not go together: 4 and 3",
        ),
        (of((1, 2, "L"), (1, 2, "L"), kernel_shape=[3], strides=[2], pads=[1, 0]), "[1, 2, 2*L]"),
        (of((1, 2, "L"), (1, 2, "L"), kernel_shape=[3], pads=[0, 1]), "[1, 2, L + 1]"),
        (of((1, 2, 3), (1, 2, 3), [1, 2, 7], kernel_shape=[2]), "?"),
    ],
    "RoiAlign": [
        (of(IMAGE, ("R", 4), ("R",)), "[R, 6, 1, 1]"),
        (of(IMAGE, ("R", 4), ("R",), output_height=2, output_width=3), "[R, 6, 2, 3]"),
        (of(IMAGE, ("R", 5), ("R",)), "the numbers of a region and those that it has to have do not go together: 5 and 4"),
        (of(IMAGE, ("R", 4), ("S",)), "[R, 6, 1, 1] where S == R"),
        (of(IMAGE, (3, 4), (2,)), "the number of batches and of regions do not go together: 2 and 3"),
    ],
    "MaxRoiPool": [
        (of(IMAGE, ("R", 5), pooled_shape=[2, 3]), "[R, 6, 2, 3]"),
        (
            of(IMAGE, ("R", 4), pooled_shape=[2, 3]),
            "the numbers of a region and those that it has to have do not go together: 4 and 5",
        ),
    ],
    "GridSample": [
        (of(IMAGE, ("N", 7, 8, 2)), "[N, 6, 7, 8]"),
        (of(IMAGE, ("M", 7, 8, 2)), "[M, 6, 7, 8] where M == N"),
        (of(IMAGE, ("N", 7, 8, 3)), "the numbers of a position and the dimensions of the data do not go together: 3 and 2"),
        (of(IMAGE, ("N", 7, 2)), "the ranks of the grid and of the data do not go together: 3 and 4"),
        (of(("N", 6, 3, 4, 5), ("N", 7, 8, 9, 3)), "[N, 6, 7, 8, 9]"),
    ],
    "AffineGrid": [
        (of((2, 2, 3), [2, 3, 4, 5]), "[2, 4, 5, 2]"),
        (of((2, 3, 4), [2, 3, 4, 5, 6]), "[2, 4, 5, 6, 3]"),
        (of(("N", 2, 3), ["M", 3, 4, 5]), "[M, 4, 5, 2] where N == M"),
        (of(("N", 2, 3), (4,)), "?; more of integers"),
        (of((2, 2, 3), [2, 3, 4]), "?"),
        (of((2, 3, 4), [2, 3, 4, 5]), "the sizes of theta and those that it has to have do not go together: 3 and 2"),
        (of((2, 2, 3), [3, 3, 4, 5]), "the sizes of theta and those that it has to have do not go together: 2 and 3"),
    ],
    "LSTM": [
        (of(("T", "N", 3), (1, 8, 3), (1, 8, 2), hidden_size=2, results=3), "[T, 1, N, 2] [1, N, 2] [1, N, 2]"),
        (of(("N", "T", 3), (1, 8, 3), (1, 8, 2), hidden_size=2, layout=1, results=3), "[N, T, 1, 2] [N, 1, 2] [N, 1, 2]"),
        (
            of(
                ("T", "N", 3), (2, 8, 3), (2, 8, 2), (2, 16), ("N",), (2, "N", 2), (2, "N", 2), (2, 6),
                hidden_size=2, direction="bidirectional", results=3,
            ),
            "[T, 2, N, 2] [2, N, 2] [2, N, 2]",
        ),
        (
            of(("T", "N", 3), (1, 8, 3), (1, 8, 2), (1, 15), hidden_size=2),
            "the sizes of input 3 and those that it has to have do not go together: 15 and 16",
        ),
        (
            of(("T", "N", 3), (1, 8, 4), (1, 8, 2), hidden_size=2),
            "the sizes of input 1 and those that it has to have do not go together: 4 and 3",
        ),
        (
            of(("T", "N", 3), (1, 7, 3), (1, 8, 2), hidden_size=2),
            "the sizes of input 1 and those that it has to have do not go together: 7 and 8",
        ),
        (
            of(("T", "N", 3), (1, 8, 3), (1, 8, 3), hidden_size=2),
            "the sizes of input 2 and those that it has to have do not go together: 3 and 2",
        ),
        (
            of(("T", "N", 3), (2, 8, 3), (1, 8, 2), hidden_size=2),
            "the sizes of input 1 and those that it has to have do not go together: 2 and 1",
        ),
        (of(("T", "N", 3), (1, 8, 3), (1, 8, 2), None, ("M",), hidden_size=2), "[T, 1, M, 2] where M == N"),
        (of((5, 2, 3), (1, 8, 3), (1, 8, 2), None, [5, 0], hidden_size=2), "[5, 1, 2, 2]"),
        (
            of((5, 2, 3), (1, 8, 3), (1, 8, 2), None, [6, 0], hidden_size=2),
            "the steps of the data and a length do not go together: 5 is less than 6",
        ),
        (
            of((5, 2, 3), (1, 8, 3), (1, 8, 2), None, [5, -1], hidden_size=2),
            "a length and nothing do not go together: -1 is less than 0",
        ),
        (
            of(("T", "N", 3), (1, 8, 3), (1, 8, 2), None, None, None, (1, "N", 3), hidden_size=2),
            "the sizes of input 6 and those that it has to have do not go together: 3 and 2",
        ),
        (
            of(("T", "N", 3), (1, 8, 3), (1, 8, 2), None, None, None, None, (1, 5), hidden_size=2),
            "the sizes of input 7 and those that it has to have do not go together: 5 and 6",
        ),
        (
            of(("N", "T", 3), (1, 8, 3), (1, 8, 2), None, None, (1, "N", 2), hidden_size=2, layout=1),
            "[1, T, 1, 2] where 1 == N",
        ),
        (of(("T", "N", 3), (1, 8, 3), (1, 8, 2)), "[T, 1, N, 2]"),
    ],
    "GRU": [
        (
            of(("T", "N", 3), (1, 6, 3), (1, 6, 2), (1, 12), None, (1, "N", 2), hidden_size=2, results=2),
            "[T, 1, N, 2] [1, N, 2]",
        ),
        (
            of(("T", "N", 3), (1, 8, 3), (1, 6, 2), hidden_size=2),
            "the sizes of input 1 and those that it has to have do not go together: 8 and 6",
        ),
    ],
    "RNN": [
        (
            of(("T", "N", 3), (1, 2, 3), (1, 2, 2), (1, 4), None, (1, "N", 2), hidden_size=2, results=2),
            "[T, 1, N, 2] [1, N, 2]",
        ),
        (
            of(("T", "N", 3), (1, 2, 3), (1, 2, 2), (1, 4), None, (1, "N", 3), hidden_size=2, results=2),
            "the sizes of input 5 and those that it has to have do not go together: 3 and 2",
        ),
    ],
    "Attention": [
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), opset=23), "[N, 4, S, 6]"),
        (of(QUERY, ("N", 2, "T", 8), ("N", 2, "T", 6), opset=23), "[N, 4, S, 6]"),
        (
            of(QUERY, ("N", 3, "T", 8), ("N", 3, "T", 6), opset=23),
            "the heads of queries and of keys do not go together: 3 and 4",
        ),
        (of(QUERY, ("M", 4, "T", 8), ("M", 4, "T", 6), opset=23), "[M, 4, S, 6] where M == N"),
        (
            of(QUERY, ("N", 4, "T", 7), ("N", 4, "T", 6), opset=23),
            "the sizes of the heads of keys and of queries do not go together: 7 and 8",
        ),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "U", 6), opset=23), "[N, 4, S, 6] where T == U"),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), None, ("N", 4, "P", 8), ("N", 4, "P", 6), results=4, opset=23),
            "[N, 4, S, 6] [N, 4, P + T, 8] [N, 4, P + T, 6] [N, 4, S, P + T]",
        ),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), None, ("N", 4, "P", 8), ("N", 4, "Q", 6), results=3, opset=23),
            "[N, 4, S, 6] [N, 4, P + T, 8] [N, 4, P + T, 6] where Q == P",
        ),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), None, ("N", 4, "P", 7), ("N", 4, "P", 6), results=3, opset=23),
            "the sizes of the past keys and of the keys do not go together: 7 and 8",
        ),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("S", "T"), opset=23), "[N, 4, S, 6]"),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("S", "U"), opset=23), "[N, 4, S, 6] where U == T"),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("S", "U"), opset=24), "[N, 4, S, 6] where T >= U"),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("S", 1), opset=23), "[N, 4, S, 6]"),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("S", 1), opset=24), "[N, 4, S, 6]"),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), (1, "N", 4, "S", "T"), opset=23),
            "the rank of the data and of the mask do not go together: 4 is less than 5",
        ),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), ("N", 1, "S", "T"), opset=23), "[N, 4, S, 6]"),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), (3, "S", "T"), opset=23),
            "the sizes of the mask and of the scores do not go together: 3 and 4",
        ),
        (of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), None, None, None, ("M",), opset=24), "[M, 4, S, 6] where M == N"),
        (of(("N", "S", 32), ("N", "T", 16), ("N", "T", 12), q_num_heads=4, kv_num_heads=2, opset=23), "[N, S, 24]"),
        (
            of(("N", "S", 32), ("N", "T", 32), ("N", "T", 24), q_num_heads=4, kv_num_heads=4, results=4, opset=23),
            "[N, S, 24] [N, 4, T, 8] [N, 4, T, 6] [N, 4, S, T]",
        ),
        (
            of(("N", "S", 30), ("N", "T", 32), ("N", "T", 24), q_num_heads=4, kv_num_heads=4, opset=23),
            "the last dimension and the heads that it is divided into do not go together: 28 and 30",
        ),
        (
            of(("N", "S", 32), ("N", "T", 32), ("N", "T", 24), opset=23),
            "the number of heads and 1 do not go together: 0 is less than 1",
        ),
        (
            of(("N", "S", 32), ("N", "T", 32), ("N", "T", 24), q_num_heads=4, opset=23),
            "the number of heads and 1 do not go together: 0 is less than 1",
        ),
        (
            of(QUERY, ("N", 4, "T", 8), ("N", 4, "T", 6), (4, 5), ("N", 4, "P", 8), ("N", 4, "P", 6), results=3, opset=23),
            "[N, 4, 4, 6] [N, 4, P + T, 8] [N, 4, P + T, 6] where 4 == S, 5 == P + T",
        ),
        (
            of(("N", "S", 32), ("N", "T", 32), ("N", "T", 24), kv_num_heads=4, opset=23),
            "the number of heads and 1 do not go together: 0 is less than 1",
        ),
        (of(QUERY, ("N", "G", "T", 8), ("N", "G", "T", 6), opset=23), "[N, 4, S, 6]"),
        (of(QUERY, ("N", 1, "T", 8), ("N", 1, "T", 6), opset=23), "[N, 4, S, 6]"),
    ],
    "RotaryEmbedding": [
        (of(QUERY, ("N", "S", 4), ("N", "S", 4), opset=23), "[N, 4, S, 8]"),
        (of(QUERY, (9, 4), (9, 4), ("N", "S"), opset=23), "[N, 4, S, 8]"),
        (
            of(QUERY, (9, 3), (9, 3), ("N", "S"), opset=23),
            "the sizes of the cache and of half a head do not go together: 3 and 4",
        ),
        (
            of(QUERY, ("N", "S", 3), ("N", "S", 4), opset=23),
            "the sizes of the cache and of the data do not go together: 3 and 4",
        ),
        (of(QUERY, (9, 4), ("M", 4), ("N", "S"), opset=23), "[N, 4, S, 8] where 9 == M"),
        (of(QUERY, (9, 4), (9, 4), ("M", "S"), opset=23), "[M, 4, S, 8] where M == N"),
        (of(("N", "S", 32), ("N", "S", 4), ("N", "S", 4), num_heads=4, opset=23), "[N, S, 32]"),
        (
            of(("N", "S", 32), ("N", "S", 4), ("N", "S", 4), opset=23),
            "the number of heads and 1 do not go together: 0 is less than 1",
        ),
        (of(QUERY, ("N", "S", 3), ("N", "S", 3), rotary_embedding_dim=6, opset=23), "[N, 4, S, 8]"),
        (of((1, 4, 2, 8), (9, 4), (9, 4), np.array([[8, 0]]), opset=23), "[1, 4, 2, 8]"),
        (
            of((1, 4, 2, 8), (9, 4), (9, 4), np.array([[9, 0]]), opset=23),
            "the cache and the positions in it do not go together: 9 is less than 10",
        ),
        (of((1, 4, 2, 8), ("L", 4), ("L", 4), np.array([[2, 5]]), opset=23), "[1, 4, 2, 8] where L >= 6"),
        (
            of(QUERY, ("N", 4), ("N", 4), opset=23),
            "the ranks of the sizes of the cache and of the data do not go together: 2 and 3",
        ),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_follow_and_what_they_require(name: str) -> None:
    check(name, CASES)
