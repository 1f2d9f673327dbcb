"""A compiled subgraph: kernels put together, run, shown, and written as bytes."""
