"""The vocabulary of sparse networks: masks, prunable weights, scores, budgets, penalties, schedules."""
