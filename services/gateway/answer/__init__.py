"""The answer itself: its plan, the stages that the plan runs, and the report in its last event.

It may import admission, generation, upstream and policies.
"""
