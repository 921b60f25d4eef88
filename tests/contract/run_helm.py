"""Helm's own code, in a process of its own: `python run_helm.py` with a list of values as JSON on standard input.

Prints, for each, what `helm lint` and `helm template` say: {"findings": […], "texts": {…}, "error": "…"}. The package
`helm-python-sdk` holds Helm (Go) as a library; a Go runtime has no place in the process that runs the tests.
"""

from __future__ import annotations

import json
import sys

import helm_python


def main(chart: str, namespace: str) -> None:
    answers = []
    for values in json.load(sys.stdin):
        findings = helm_python.lint(chart, values, namespace=namespace)["messages"]
        try:
            with helm_python.Chart.load(chart) as loaded:
                loaded.validate_schema(values)
                texts, error = loaded.render(values, name="mesh", namespace=namespace), ""
        except helm_python.HelmError as wrong:
            texts, error = {}, str(wrong)
        answers.append({"findings": findings, "texts": texts, "error": error})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
