"""Numbers computed one by one: what each op makes of them, and chains of such ops."""
