"""From a placed graph to compiled subgraphs, and the report about it."""
