"""Compiled models: inputs and outputs, the steps of a call, asynchronous requests, and profiles."""
