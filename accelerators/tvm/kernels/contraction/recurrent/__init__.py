"""Recurrent layers: the steps through time, after one product has projected the inputs of all steps."""
