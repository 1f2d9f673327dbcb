"""A compiled model: its inputs and outputs, the steps of a call, requests, and what a run took."""
