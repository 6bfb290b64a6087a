"""The rules of the plan, one module each, applied in the order of `policy.planning.planner.plan`.

Each rule reads and changes the `CycleState` of the plan and nothing else.
"""
