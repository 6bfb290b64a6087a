"""The rules of the plan, one module each, applied in the order of `policy.planning.planner.plan`.

Each rule reads and changes the `Book` of the plan and nothing else.
"""
