package main

import (
	"context"
	"errors"
	"strings"

	"github.com/yardmaster/yardmaster/hack/demo/shell"
)

// explain shows what may tell why an example went wrong.
func (d *demo) explain(ctx context.Context, name string) {
	d.title("Why " + name + " may have gone wrong")
	selector := "yardmaster.dev/sequentialjob=" + name
	d.kubectl(ctx, "-n", namespace, "get", "sequentialjob", name, "-o",
		`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
	d.kubectl(ctx, "-n", namespace, "get", "jobs,pods", "-l", selector, "-o", "wide")
	d.kubectl(ctx, "-n", namespace, "events", "--for", "sequentialjob/"+name)
	d.kubectl(ctx, "-n", namespace, "events", "--types=Warning")
}

// explainOperator shows how the operator is, if that may have to do with the error.
func (d *demo) explainOperator(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		for _, example := range d.examples {
			if strings.Contains(err.Error(), example.Name()) {
				d.explain(ctx, example.Name())
			}
		}
		d.explainOperatorState(ctx)
	}
	return err
}

func (d *demo) explainOperatorState(ctx context.Context) {
	d.title("The operator")
	d.kubectl(ctx, "-n", operatorNamespace, "get", "pods", "-o", "wide")
	d.kubectl(ctx, "-n", operatorNamespace, "events")
	d.kubectl(ctx, "-n", operatorNamespace, "logs", "deployment/yardmaster", "--tail=40", "--prefix")
}

// kubectl runs kubectl and shows the command as a user would type it. What it has to say,
// also of a failure, is all there is to it.
func (d *demo) kubectl(ctx context.Context, args ...string) {
	d.screen.Say("\n  $ kubectl %s", strings.Join(quoted(args), " "))
	command := d.cluster.Kubectl()
	if err := shell.Run(ctx, command[0], append(command[1:len(command):len(command)], args...)...); err != nil && !errors.Is(err, context.Canceled) {
		d.screen.Say("  %v", err)
	}
}

func quoted(args []string) []string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if strings.ContainsAny(arg, " {}\"*") {
			words[i] = "'" + arg + "'"
		}
	}
	return words
}
