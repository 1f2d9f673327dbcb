"""Output ops of networks for training: in inference their label is not read and they have no loss."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.activation import over_all_but_first
from partita.graph.readers.mxnet.ops.registry import converter, register

SOFTMAX_OUTPUT = "ignore_label multi_output use_ignore preserve_shape normalization out_grad smooth_alpha"


@converter("SoftmaxOutput Softmax", SOFTMAX_OUTPUT, inputs=(1, 2), labels=(1,), onnx="Softmax")
def softmax_output(c: Conversion) -> NodeEntry:
    if c.params.boolean("multi_output"):
        return c.result("Softmax", c.inputs[0], axis=1)
    if c.params.boolean("preserve_shape"):
        return c.result("Softmax", c.inputs[0], axis=-1)
    return over_all_but_first(c, c.inputs[0])


@converter("LogisticRegressionOutput", inputs=(1, 2), labels=(1,), onnx="Sigmoid")
def logistic_regression(c: Conversion) -> NodeEntry:
    return c.result("Sigmoid", c.inputs[0])


def passed_on(c: Conversion) -> NodeEntry:
    """The first input unchanged."""
    return c.result("Identity", c.inputs[0])


register("LinearRegressionOutput MAERegressionOutput", passed_on, inputs=(1, 2), labels=(1,))
register("SVMOutput", passed_on, "margin regularization_coefficient use_linear", inputs=(1, 2), labels=(1,))
register("MakeLoss make_loss", passed_on, "valid_thresh normalization")
register("IdentityAttachKLSparseReg", passed_on, "sparseness_target penalty")
register("identity _copy BlockGrad stop_gradient _CrossDeviceCopy", passed_on, onnx="Identity")
register("_contrib_gradientmultiplier", passed_on, "scalar is_int")
register("_identity_with_attr_like_rhs", passed_on, inputs=2)


@converter("Dropout", "p mode axes", onnx="Dropout")
def dropout(c: Conversion) -> NodeEntry:
    if c.params.choice("mode", ("training", "always"), "training") == "training":
        return c.result("Dropout", c.inputs[0])
    if c.params.integers("axes"):
        c.params.fail("axes", "empty, for a Dropout that is always on")
    ratio = c.like("p", c.params.number("p", 0.5), c.inputs[0])
    return c.result("Dropout", c.inputs[0], ratio, c.constant("always", True, "bool"))
