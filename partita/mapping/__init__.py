"""A model over many inputs, run by several processes or by Ray: `pt.map_batches`, `pt.compile_many` and `partita map`."""
