"""Which recipe adds which op. A recipe knows what an op asks of its inputs beyond their types, and draws all else."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.models.builder import Builder

Recipe = Callable[[Builder, str], None]

RECIPES: dict[str, Recipe] = {}
"""The recipe of each op."""

LEFT_OUT = {
    "Bernoulli": "draws random numbers",
    "Multinomial": "draws random numbers",
    "RandomNormal": "draws random numbers",
    "RandomNormalLike": "draws random numbers",
    "RandomUniform": "draws random numbers",
    "RandomUniformLike": "draws random numbers",
    "Constant": "constants are nodes of another kind; every model has some",
    "ImageDecoder": "decodes images; the mutator of files covers images",
    "MaxRoiPool": "the reference has no numpy meaning of it",
    "Optional": "optionals are not tensors",
    "OptionalGetElement": "optionals are not tensors",
    "OptionalHasElement": "optionals are not tensors",
    "RegexFullMatch": "strings",
    "StringConcat": "strings",
    "StringNormalizer": "strings",
    "StringSplit": "strings",
    "TfIdfVectorizer": "text",
    "Scatter": "withdrawn: ScatterElements has taken its place",
    "Upsample": "withdrawn: Resize has taken its place",
}
"""The ops of ONNX that no random model has, and why."""


def recipe(names: str) -> Callable[[Recipe], Recipe]:
    """Registers the function for these ops."""

    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names.split(), function))
        return function

    return register
