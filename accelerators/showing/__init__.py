"""Pictures of placements and runs, and notebook representations."""
