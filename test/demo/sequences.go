package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
)

// sequenceScenario runs the examples of SequentialJobs.
type sequenceScenario struct {
	*demoEnvironment

	section  *page.Section
	examples []*runningExample
}

// runningExample is an example and the demo's progress with it.
type runningExample struct {
	scenario.Example
	actionDone bool
	// phaseSince is when the demo first saw the current phase.
	phaseSince time.Time
}

func (a *sequenceScenario) begin() *page.Section {
	a.section = a.page.NewSection("SequentialJob", "steps in order: examples/sequentialjob in namespace "+sequencesNamespace)
	return a.section
}

// run runs the examples, some of which the demo changes while they run.
func (a *sequenceScenario) run(ctx context.Context) (result string, err error) {
	if err := a.applyExamples(ctx); err != nil {
		return "", err
	}
	if err := a.followExamples(ctx); err != nil {
		return "", err
	}
	if err := a.checkOutcomes(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("SequentialJob: %d examples, of which one was fixed and rerun from its failed step, and one resumed. An invalid one was refused.",
		len(a.examples)), nil
}

func (a *sequenceScenario) showDetails(ctx context.Context) {
	a.page.PrintTitle("SequentialJobs in kubectl")
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "sj", "-o", "wide")
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/failing-migration")
}

// showState prints details of the examples that the error names.
func (a *sequenceScenario) showState(ctx context.Context, err error) {
	for _, example := range a.examples {
		name := example.ObjectName()
		if !strings.Contains(err.Error(), name) {
			continue
		}
		a.page.PrintTitle("Details of " + name)
		selector := "yardmaster.dev/sequentialjob=" + name
		a.runKubectl(ctx, "-n", sequencesNamespace, "get", "sequentialjob", name, "-o",
			`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
		a.runKubectl(ctx, "-n", sequencesNamespace, "get", "jobs,pods", "-l", selector, "-o", "wide")
		a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/"+name)
		a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--types=Warning")
	}
}
