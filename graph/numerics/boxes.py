"""Boxes in images."""

from __future__ import annotations

import numpy as np

from partita.graph.types import Array

from .registry import fails, numerics


@numerics("NonMaxSuppression", why=fails("where the limits are scalars"))
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int,
) -> Array:
    """Per class, selects the boxes with the best scores whose overlap with every better box is within the threshold; the
    result has rows of batch, class, box. (The limits may be scalars, which ONNX's own reference rejects.)
    """
    most = int(_number(max_output_boxes_per_class, 0))
    limit = float(_number(iou_threshold, 0))
    rows = []
    for batch, of_batch in enumerate(scores):
        corners = _corners(boxes[batch].astype(np.float32), center_point_box)
        for kind, scores_of_class in enumerate(of_batch):
            kept: list[int] = []
            for box in np.argsort(-scores_of_class, kind="stable"):
                if len(kept) >= most or (score_threshold is not None and not scores_of_class[box] > _number(score_threshold, 0)):
                    break
                if all(_overlap(corners[box], corners[other]) <= limit for other in kept):
                    kept.append(int(box))
            rows += [(batch, kind, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _number(value: Array | None, default: float) -> float:
    return default if value is None or not value.size else value.reshape(-1)[0]


def _corners(boxes: Array, centered: int) -> Array:
    """Both ends on each axis, the lower first."""
    if centered:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _overlap(one: Array, other: Array) -> float:
    """Intersection over union of two boxes."""
    sides = np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0)
    shared = float(sides[0] * sides[1])
    areas = [float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)]
    if min(areas) <= 0 or shared <= 0:
        return 0.0
    return shared / (areas[0] + areas[1] - shared)
