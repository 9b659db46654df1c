package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// followExamples shows the progress of the examples and applies their actions until all are finished.
func (a *sequenceScenario) followExamples(ctx context.Context) error {
	latest := map[string]*v1alpha1.SequentialJob{}
	return a.waitUntil(ctx, "all examples to finish", func(ctx context.Context) (bool, error) {
		now, err := a.readSequences(ctx)
		if err != nil {
			return false, err
		}
		a.showProgress(latest, now)
		latest = now
		if err := a.applyDueActions(ctx, now); err != nil {
			return false, err
		}
		return true, a.checkFinished(now)
	})
}

// readSequences reads the SequentialJobs of the examples.
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
			return nil, fmt.Errorf("SequentialJob %s was deleted", example.ObjectName())
		}
	}
	return byName, nil
}

// showProgress draws the table.
func (a *sequenceScenario) showProgress(before, now map[string]*v1alpha1.SequentialJob) {
	shown := make([]*v1alpha1.SequentialJob, len(a.examples))
	for i, example := range a.examples {
		name := example.ObjectName()
		shown[i] = now[name]
		for _, change := range render.SequenceChanges(before[name], now[name]) {
			a.section.Log("%-20s %s", name, change.Text)
		}
	}
	a.section.Draw(append(render.SequenceTable(a.page.Style, shown, time.Now()).Lines(false), render.StepLegend(a.page.Style)))
	for _, example := range a.examples {
		name := example.ObjectName()
		if before[name] == nil || before[name].Status.Phase != now[name].Status.Phase {
			example.phaseSince = time.Now()
		}
	}
}

// applyDueActions applies the actions that are due.
func (a *sequenceScenario) applyDueActions(ctx context.Context, now map[string]*v1alpha1.SequentialJob) error {
	for _, example := range a.examples {
		sj := now[example.ObjectName()]
		if example.actionDone || !example.Action.IsDue(sj, time.Since(example.phaseSince)) {
			continue
		}
		a.section.Act(example.Action.Description, example.Action.KubectlCommand(sequencesNamespace, sj.Name))
		if err := a.client.Patch(ctx, sj, client.RawPatch(example.Action.Type, []byte(example.Action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", sj.Name, err)
		}
		example.actionDone = true
	}
	return nil
}

// checkFinished returns an error that names the examples that are not finished.
func (a *sequenceScenario) checkFinished(now map[string]*v1alpha1.SequentialJob) error {
	var waiting []string
	for _, example := range a.examples {
		if !example.IsFinished(now[example.ObjectName()], example.actionDone) {
			waiting = append(waiting, example.ObjectName())
		}
	}
	if len(waiting) > 0 {
		return errors.New("not finished: " + strings.Join(waiting, ", "))
	}
	return nil
}
