"""Lower precision per op: ranges of activations, the graph in other precisions, and the plan of precisions."""
