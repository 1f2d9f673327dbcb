"""Pictures of placements and runs, and what a notebook shows."""
