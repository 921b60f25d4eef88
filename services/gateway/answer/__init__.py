"""The answer itself: its plan, the stages that the plan drives, and the account that its last event is made from.

What it may enter: admission (what was proved of the question), generation, upstream and policies.
"""
