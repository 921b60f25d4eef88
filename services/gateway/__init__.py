"""The gateway: admits a request, runs the stages of its answer, and calls models through policies.

api/servicer.py, or http/app.py   a request comes in
api/preparation.py                it is checked (admission/), admitted, and given a plan
answer/runner.py                  the stages of the plan run (answer/stages/)
generation/stack.py               the policies around a call to a model (algorithms: policies/)
upstream/                         the calls to models and services
answer/ledger.py                  what the report and the metrics say of it
"""
