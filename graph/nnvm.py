"""Keywords of NNVM's JSON form, and Partita's extensions.
NNVM's form has nodes with an op ("null" for variables and constants), a name, attributes that are strings, inputs
`[node, output, version]`, control dependencies and subgraphs; `arg_nodes`, `node_row_ptr` (where each node's outputs
begin among all values), `heads` (the outputs), and graph attributes tagged by their type. Everything else that a graph
of ours has goes where NNVM's own readers keep it without interpreting it: into node attributes named `__like_this__`,
and into graph attributes. Attribute values are spelled as in the text form.

Constants are "null" nodes whose `__value__` holds the array, in base64 if it is large, so the file needs no other.
A body that is used several times is written once and numbered; its other uses refer to that number."""

from __future__ import annotations

NULL = "null"
"""The op of variables and constants."""

PREFIX = "__"
"""Prefix and suffix of Partita's own attributes."""

ESCAPE = "__attr__"
"""Prefix that escapes a node attribute whose name looks like one of Partita's own."""

OP = "__op__"
"""The op, if its name is "null"."""

DOMAIN = "__domain__"
"""The op's domain."""

OUTPUTS = "__outputs__"
"""Names of the outputs, unless there is one output with the node's name."""

ABSENT = "__absent__"
"""Positions of absent inputs."""

CAPTURES = "__captures__"
"""Number of inputs, at the end, that are captures."""

CALL = "__call__"
"""The number of the body that is called."""

AFFINITY = "__affinity__"
"""The requested device."""

METADATA = "__metadata__"
"""Keys and values in turn."""

VALUE = "__value__"
"""The array of a constant."""

FORM = "partita"
"""The graph attribute that marks Partita's files; its value is the version of the form."""

FORM_VERSION = 1
"""The version written here."""
