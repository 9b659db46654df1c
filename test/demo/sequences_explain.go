package main

import (
	"context"
	"strings"
)

// explainExample prints what may explain why an example did not end as expected.
func (a *sequenceScenario) explainExample(ctx context.Context, name string) {
	a.printTitle("Details of " + name)
	selector := "yardmaster.dev/sequentialjob=" + name
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "sequentialjob", name, "-o",
		`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "jobs,pods", "-l", selector, "-o", "wide")
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/"+name)
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--types=Warning")
}

// explainFailure prints details of the examples in the error message and of the operator, and
// returns the error.
func (a *sequenceScenario) explainFailure(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		for _, example := range a.examples {
			if strings.Contains(err.Error(), example.ObjectName()) {
				a.explainExample(ctx, example.ObjectName())
			}
		}
	}
	return a.showOperatorAfter(ctx, err)
}
