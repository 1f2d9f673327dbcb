"""Long attacks: `python -m tests.soak` runs them and prints what came of them. Short versions are among the quick tests."""
