"""The rules of the plan, one module each; `policy.planning.planner` applies them in order.

Each rule reads the plan's `Book` and yields decisions, which the book records.
"""
