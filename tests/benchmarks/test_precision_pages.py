"""Tables of the documentation that are measured in pieces."""

from __future__ import annotations

from benchmarks.precision_pages import merged, rows_of

PAGE = """before
<!-- precision:int8-1 -->
| model | ms | / onnxruntime | / openvino | difference |
|---|---|---|---|---|
| resnet50 | 12.00 | 0.50 ±0.01 | 1.00 ±0.02 | 0.2 |
| bert | 30.00 | 0.50 ±0.01 | it ends the process | 0.1 |
| geometric mean | | 0.50 ±0.01 | 1.00 ±0.02 | |
<!-- /precision:int8-1 -->
after
"""

PRINTED = """**int8, 1 thread**

| model | ms | / onnxruntime | / openvino | difference |
|---|---|---|---|---|
-- model 1/2: vgg19
| vgg19 | 50.00 | 0.25 ±0.01 | 0.81 ±0.02 | 0.0 |
| bert | 31.00 | 1.00 ±0.01 | inconclusive (±40%) | 0.1 |
| gpt2 | the model cannot be quantized |
| geometric mean | | 0.50 ±0.01 | 0.81 ±0.02 |  |
"""


def test_rows_that_were_measured_replace_those_of_their_models() -> None:
    (title, rows), *others = rows_of(PRINTED).items()
    assert (title, list(rows), others) == (("int8", 1), ["vgg19"], [])
    page = merged(PAGE, title, rows)
    assert page == PAGE.replace("| bert", "| vgg19 | 50.00 | 0.25 ±0.01 | 0.81 ±0.02 | 0.0 |\n| bert").replace(
        "| geometric mean | | 0.50 ±0.01 | 1.00 ±0.02 | |", "| geometric mean | | 0.40 ±0.01 | 0.90 ±0.01 |  |"
    )
    assert merged(PAGE, ("int8", 2), rows) == PAGE
