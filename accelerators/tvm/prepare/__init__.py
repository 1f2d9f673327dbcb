"""What happens to a subgraph before it is asked about: constants worked out, ops taken apart."""
