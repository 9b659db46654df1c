package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// followExamples shows how the examples get on, and does to them what is due, until all are over.
func (a *sequenceScenario) followExamples(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("time is up"))
	defer cancel()
	a.screen.PrintLine("")
	defer a.screen.KeepLines()

	started := time.Now()
	seen := map[string]*v1alpha1.SequentialJob{}
	var failure error // of the last look
	for {
		var now map[string]*v1alpha1.SequentialJob
		if now, failure = a.readSequences(ctx); failure == nil {
			a.printProgress(seen, now, time.Since(started))
			if failure = a.applyDueActions(ctx, now); failure == nil && a.allFinished(now) {
				return nil
			}
			seen = now
		}
		select {
		case <-ctx.Done():
			return a.timeoutError(context.Cause(ctx), seen, failure)
		case <-time.After(pollInterval):
		}
	}
}

func (a *sequenceScenario) timeoutError(cause error, seen map[string]*v1alpha1.SequentialJob, failure error) error {
	var waiting []string
	for _, example := range a.examples {
		if sj := seen[example.ObjectName()]; sj == nil || !example.IsFinished(sj, example.actionDone) {
			waiting = append(waiting, example.ObjectName())
		}
	}
	return errors.Join(fmt.Errorf("%w: not over yet after %s: %s", cause, a.timeout, strings.Join(waiting, ", ")), failure)
}

// readSequences reads the examples' objects.
func (a *sequenceScenario) readSequences(ctx context.Context) (map[string]*v1alpha1.SequentialJob, error) {
	var list v1alpha1.SequentialJobList
	if err := a.client.List(ctx, &list, client.InNamespace(sequencesNamespace)); err != nil {
		return nil, err
	}
	byName := make(map[string]*v1alpha1.SequentialJob, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	for _, example := range a.examples {
		if byName[example.ObjectName()] == nil {
			return nil, fmt.Errorf("SequentialJob %s is gone", example.ObjectName())
		}
	}
	return byName, nil
}

// printProgress shows what there is to see now.
func (a *sequenceScenario) printProgress(before, now map[string]*v1alpha1.SequentialJob, since time.Duration) {
	if !a.screen.IsTerminal() {
		for _, example := range a.examples {
			name := example.ObjectName()
			for _, change := range render.SequenceChanges(before[name], now[name]) {
				a.screen.PrintLine("  %4s  %-20s %s", since.Round(time.Second), name, change)
			}
		}
	} else {
		shown := make([]*v1alpha1.SequentialJob, len(a.examples))
		for i, example := range a.examples {
			shown[i] = now[example.ObjectName()]
		}
		a.screen.DrawLines(append(render.SequenceTable(a.screen.Style, shown, time.Now()).Lines(false), "", render.StepLegend(a.screen.Style)))
	}
	for _, example := range a.examples {
		name := example.ObjectName()
		if before[name] == nil || before[name].Status.Phase != now[name].Status.Phase {
			example.phaseSince = time.Now()
		}
	}
}

// applyDueActions does what a user would, where it is due.
func (a *sequenceScenario) applyDueActions(ctx context.Context, now map[string]*v1alpha1.SequentialJob) error {
	for _, example := range a.examples {
		sj := now[example.ObjectName()]
		if example.actionDone || !example.Action.IsDue(sj, time.Since(example.phaseSince)) {
			continue
		}
		a.screen.PrintLine("\n  %s\n  $ %s\n", example.Action.Description, example.Action.KubectlCommand(sequencesNamespace, sj.Name))
		if err := a.client.Patch(ctx, sj, client.RawPatch(example.Action.Type, []byte(example.Action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", sj.Name, err)
		}
		example.actionDone = true
	}
	return nil
}

func (a *sequenceScenario) allFinished(now map[string]*v1alpha1.SequentialJob) bool {
	return !slices.ContainsFunc(a.examples, func(example *runningExample) bool {
		return !example.IsFinished(now[example.ObjectName()], example.actionDone)
	})
}
