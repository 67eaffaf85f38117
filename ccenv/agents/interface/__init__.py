"""What a policy sees, what it sets and what it is rewarded for: named tables, with their formulas compiled beside them."""
