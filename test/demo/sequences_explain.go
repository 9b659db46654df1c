package main

import (
	"context"
	"strings"
)

// explain shows what may tell why an example went wrong.
func (a *sequences) explain(ctx context.Context, name string) {
	a.title("Why " + name + " may have gone wrong")
	selector := "yardmaster.dev/sequentialjob=" + name
	a.kubectl(ctx, "-n", sequencesNamespace, "get", "sequentialjob", name, "-o",
		`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
	a.kubectl(ctx, "-n", sequencesNamespace, "get", "jobs,pods", "-l", selector, "-o", "wide")
	a.kubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/"+name)
	a.kubectl(ctx, "-n", sequencesNamespace, "events", "--types=Warning")
}

// explainError shows what may tell why, of the examples that the error names and of the operator.
func (a *sequences) explainError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		for _, example := range a.examples {
			if strings.Contains(err.Error(), example.Name()) {
				a.explain(ctx, example.Name())
			}
		}
	}
	return a.explainOperator(ctx, err)
}
