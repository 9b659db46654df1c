package main

import (
	"context"
	"strings"
)

// explainExample shows what may tell why an example went wrong.
func (a *sequenceScenario) explainExample(ctx context.Context, name string) {
	a.printTitle("Why " + name + " may have gone wrong")
	selector := "yardmaster.dev/sequentialjob=" + name
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "sequentialjob", name, "-o",
		`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "jobs,pods", "-l", selector, "-o", "wide")
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/"+name)
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--types=Warning")
}

// explainFailure shows what may tell why, of the examples that the error names and of the operator.
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
