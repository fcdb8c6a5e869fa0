"""Parts of sparse training: masks, prunable weights, scores, distributions, penalties, schedules."""
