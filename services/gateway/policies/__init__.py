"""Algorithms of policies. They know no request and no model, and import only the runtime. `generation/stack.py`
composes the policies that use them.

limiter.py             slots at a backend: `concurrency_limit` how many, `wait_queue`, `slot`, `batch_admission`
breaker.py             calls kept from a backend that fails; of several tenants: `tenant_aware_breaker`
hedge.py               when to make a second call, and the budget for it; two calls at a time: `race`
retry.py               the budget of retries, and the pause before one
single_flight.py       one execution for equal requests
start_order.py         which of the calls that have come begins next
work_shares.py         whose calls are refused while the process is under pressure
baseline.py            a backend's usual times and token rate
"""
