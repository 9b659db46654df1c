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

// follow shows how the examples get on, and does to them what is due, until all are over.
func (a *sequences) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errors.New("time is up"))
	defer cancel()
	a.screen.PrintLine("")
	defer a.screen.KeepLines()

	started := time.Now()
	seen := map[string]*v1alpha1.SequentialJob{}
	var failure error // of the last look
	for {
		var now map[string]*v1alpha1.SequentialJob
		if now, failure = a.look(ctx); failure == nil {
			a.tell(seen, now, time.Since(started))
			if failure = a.act(ctx, now); failure == nil && a.allOver(now) {
				return nil
			}
			seen = now
		}
		select {
		case <-ctx.Done():
			return a.unfinished(context.Cause(ctx), seen, failure)
		case <-time.After(often):
		}
	}
}

func (a *sequences) unfinished(cause error, seen map[string]*v1alpha1.SequentialJob, failure error) error {
	var waiting []string
	for _, example := range a.examples {
		if sj := seen[example.Name()]; sj == nil || !example.Over(sj, example.acted) {
			waiting = append(waiting, example.Name())
		}
	}
	return errors.Join(fmt.Errorf("%w: not over yet after %s: %s", cause, a.limit, strings.Join(waiting, ", ")), failure)
}

// look reads the examples' objects.
func (a *sequences) look(ctx context.Context) (map[string]*v1alpha1.SequentialJob, error) {
	var list v1alpha1.SequentialJobList
	if err := a.client.List(ctx, &list, client.InNamespace(sequencesNamespace)); err != nil {
		return nil, err
	}
	byName := make(map[string]*v1alpha1.SequentialJob, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	for _, example := range a.examples {
		if byName[example.Name()] == nil {
			return nil, fmt.Errorf("SequentialJob %s is gone", example.Name())
		}
	}
	return byName, nil
}

// tell shows what there is to see now.
func (a *sequences) tell(before, now map[string]*v1alpha1.SequentialJob, since time.Duration) {
	if !a.screen.IsTerminal() {
		for _, example := range a.examples {
			name := example.Name()
			for _, change := range render.SequenceChanges(before[name], now[name]) {
				a.screen.PrintLine("  %4s  %-20s %s", since.Round(time.Second), name, change)
			}
		}
	} else {
		shown := make([]*v1alpha1.SequentialJob, len(a.examples))
		for i, example := range a.examples {
			shown[i] = now[example.Name()]
		}
		a.screen.DrawLines(append(render.SequenceTable(a.screen.Style, shown, time.Now()).Lines(false), "", render.StepLegend(a.screen.Style)))
	}
	for _, example := range a.examples {
		name := example.Name()
		if before[name] == nil || before[name].Status.Phase != now[name].Status.Phase {
			example.phaseSince = time.Now()
		}
	}
}

// act does what a user would, where it is due.
func (a *sequences) act(ctx context.Context, now map[string]*v1alpha1.SequentialJob) error {
	for _, example := range a.examples {
		sj := now[example.Name()]
		if example.acted || !example.Action.Due(sj, time.Since(example.phaseSince)) {
			continue
		}
		a.screen.PrintLine("\n  %s\n  $ %s\n", example.Action.What, example.Action.Command(sequencesNamespace, sj.Name))
		if err := a.client.Patch(ctx, sj, client.RawPatch(example.Action.Type, []byte(example.Action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", sj.Name, err)
		}
		example.acted = true
	}
	return nil
}

func (a *sequences) allOver(now map[string]*v1alpha1.SequentialJob) bool {
	return !slices.ContainsFunc(a.examples, func(example *played) bool {
		return !example.Over(now[example.Name()], example.acted)
	})
}
