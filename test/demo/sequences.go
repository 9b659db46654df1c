package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
)

type sequenceScenario struct {
	*demoEnvironment

	section  *page.Section
	examples []*runningExample
}

// runningExample is an example and the demo's progress with it.
type runningExample struct {
	scenario.Example
	actionDone bool
	phaseSince time.Time // when the demo first saw the current phase
}

func (a *sequenceScenario) begin() *page.Section {
	a.section = a.page.NewSection("SequentialJob", "steps in order: examples/sequentialjob in namespace "+sequencesNamespace)
	return a.section
}

// run runs the examples, some of which the demo changes while they run.
func (a *sequenceScenario) run(ctx context.Context) (result string, err error) {
	for _, step := range []func(context.Context) error{a.applyExamples, a.followExamples, a.checkOutcomes} {
		if err := step(ctx); err != nil {
			return "", err
		}
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

func (a *sequenceScenario) applyExamples(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, sequencesNamespace); err != nil {
		return err
	}
	for _, example := range scenario.Examples() {
		if example.Missing != "" {
			a.section.Log("skipping %s: it needs %s", example.File, example.Missing)
			continue
		}
		if err := a.applyExample(ctx, &example); err != nil {
			return err
		}
		if example.IsApplied() {
			a.examples = append(a.examples, &runningExample{Example: example})
		}
	}
	return nil
}

func (a *sequenceScenario) applyExample(ctx context.Context, example *scenario.Example) error {
	object, err := readManifest(example.ManifestPath(), sequencesNamespace)
	if err != nil {
		return err
	}
	a.section.Log("$ kubectl -n %s apply -f examples/%s", sequencesNamespace, example.ManifestPath())
	err = a.create(ctx, object)
	if example.Refused == "" {
		return err
	}
	return checkRefusal(a.section, example.File, example.Refused, err)
}

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

func (a *sequenceScenario) showProgress(before, now map[string]*v1alpha1.SequentialJob) {
	shown := make([]*v1alpha1.SequentialJob, len(a.examples))
	for i, example := range a.examples {
		name := example.ObjectName()
		shown[i] = now[name]
		for _, change := range render.SequenceChanges(before[name], now[name]) {
			a.section.Log("%-20s %s", name, change.Text)
		}
		if before[name] == nil || before[name].Status.Phase != now[name].Status.Phase {
			example.phaseSince = time.Now()
		}
	}
	a.section.Draw(append(render.SequenceTable(a.page.Style, shown, time.Now()).Lines(false), render.StepLegend(a.page.Style)))
}

func (a *sequenceScenario) applyDueActions(ctx context.Context, now map[string]*v1alpha1.SequentialJob) error {
	for _, example := range a.examples {
		sj := now[example.ObjectName()]
		if example.actionDone || !example.Action.IsDue(sj.Status.Phase, time.Since(example.phaseSince)) {
			continue
		}
		a.section.Act(example.Action.Description, example.Action.KubectlCommand(sequencesNamespace, "sequentialjob", sj.Name))
		if err := a.client.Patch(ctx, sj, client.RawPatch(example.Action.Type, []byte(example.Action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", sj.Name, err)
		}
		example.actionDone = true
	}
	return nil
}

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

// checkOutcomes compares how each example ended, with its logs and outputs, with what is expected.
func (a *sequenceScenario) checkOutcomes(ctx context.Context) error {
	now, err := a.readSequences(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, example := range a.examples {
		sj := now[example.ObjectName()]
		logs := a.readStepLogs(ctx, sj)
		a.logOutcome(sj, logs)
		for _, mismatch := range example.Mismatches(sj, func(step *v1alpha1.StepStatus) string { return logs[step.Name] }) {
			errs = append(errs, fmt.Errorf("%s: %s", sj.Name, mismatch))
		}
	}
	return errors.Join(errs...)
}

func (a *sequenceScenario) logOutcome(sj *v1alpha1.SequentialJob, logs map[string]string) {
	run := ""
	if sj.Status.Run > 1 {
		run = fmt.Sprintf(" in run %d", sj.Status.Run)
	}
	a.section.Log("%s: %s%s, %s steps succeeded", sj.Name, sj.Status.Phase, run, sequentialjob.FormatProgress(sj, false))
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		line := fmt.Sprintf("    %-14s %-10s %s", step.Name, step.Phase, stepRemarks(step, sj.Status.Run, logs[step.Name]))
		a.section.Log("%s", strings.TrimRight(line, " "))
	}
}

// stepRemarks returns the end of a step's log, its output and the cause of its failure.
func stepRemarks(step *v1alpha1.StepStatus, run int32, log string) string {
	var text strings.Builder
	if step.Phase == v1alpha1.StepSucceeded && step.Run != run {
		fmt.Fprintf(&text, "from run %d  ", step.Run)
	}
	if lines := strings.Split(strings.TrimSpace(log), "\n"); log != "" {
		fmt.Fprintf(&text, "log: %s  ", lines[len(lines)-1])
	}
	if step.Output != "" {
		fmt.Fprintf(&text, "output: %s  ", step.Output)
	}
	if step.Phase == v1alpha1.StepFailed {
		fmt.Fprintf(&text, "%s: %s", step.Reason, truncateMessage(step.Message))
	}
	return strings.TrimRight(text.String(), " ")
}

func truncateMessage(message string) string {
	const limit = 76
	message, _, _ = strings.Cut(message, "\n")
	if len(message) > limit {
		return message[:limit] + "..."
	}
	return message
}

// readStepLogs returns the logs of a SequentialJob's steps by name. It omits logs that cannot be read.
func (a *sequenceScenario) readStepLogs(ctx context.Context, sj *v1alpha1.SequentialJob) map[string]string {
	logs := map[string]string{}
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if step.JobName == "" || step.Phase == v1alpha1.StepSkipped {
			continue
		}
		logs[step.Name], _ = a.readJobLog(ctx, sequencesNamespace, step.JobName)
	}
	return logs
}
