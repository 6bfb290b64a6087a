"""The rules of the plan, one module each, applied in the order of `policy.elasticity.plan`.

Each takes the `Work` of the plan and changes nothing else; the sums it needs are in `Work`.
"""
