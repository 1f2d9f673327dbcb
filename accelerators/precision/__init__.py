"""Lower precision, op by op: which numbers activations take, the graph in other precisions, and the plan that says which."""
