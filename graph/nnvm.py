"""The words of NNVM's JSON form, and what Partita adds to it.

NNVM's form has nodes with an op ("null" for what is given from outside), a name, attributes that are strings, inputs
`[node, output, version]`, control dependencies and subgraphs; `arg_nodes`, `node_row_ptr` (where each node's outputs
begin among all values), `heads` (the outputs), and graph attributes tagged by their type. Whatever a graph of ours has
beyond that stands where NNVM's own readers carry it along unread: in node attributes named `__like_this__`, and in
graph attributes. Attribute values are spelled as in the text form.

Constants are "null" nodes whose `__value__` holds the array, in base64 where it is large: the file needs nothing
beside it. A body that stands in several places is written in the first of them and numbered; the others name its
number."""

from __future__ import annotations

NULL = "null"
"""The op of what is given from outside: variables and constants."""

PREFIX = "__"
"""Attributes of Partita's own begin and end so."""

ESCAPE = "__attr__"
"""Stands before the name of a node's attribute that would look like one of Partita's own."""

OP = "__op__"
"""The op, where it is "null" itself."""

DOMAIN = "__domain__"
"""The op's domain."""

OUTPUTS = "__outputs__"
"""Names of the outputs, where they are not one output that bears the node's name."""

ABSENT = "__absent__"
"""Positions of absent inputs."""

CAPTURES = "__captures__"
"""How many of the last inputs are captures."""

CALL = "__call__"
"""The number of the body that is called."""

AFFINITY = "__affinity__"
"""The device wished for."""

METADATA = "__metadata__"
"""Keys and values in turn."""

VALUE = "__value__"
"""The array of a constant."""

FORM = "partita"
"""The graph attribute that says that the file is Partita's; its value is the version of the form."""

FORM_VERSION = 1
"""The version written here."""

DTYPES = (
    "float32 float64 float16 uint8 int32 int8 int64 bool int16 uint16 uint32 uint64 bfloat16".split()
)
"""NNVM's numbers for dtypes are positions in this list; -1 is unknown."""
