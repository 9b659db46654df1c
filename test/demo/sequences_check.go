package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
)

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

// readStepLogs returns the logs of a SequentialJob's steps by name. It omits logs that cannot
// be read.
func (a *sequenceScenario) readStepLogs(ctx context.Context, sj *v1alpha1.SequentialJob) map[string]string {
	logs := map[string]string{}
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if step.JobName == "" || step.Phase == v1alpha1.StepSkipped {
			continue
		}
		var pods corev1.PodList
		if err := a.client.List(ctx, &pods, client.InNamespace(sequencesNamespace), client.MatchingLabels{batchv1.JobNameLabel: step.JobName}); err != nil {
			continue
		}
		slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		for j := range pods.Items {
			if content, err := a.clientset.CoreV1().Pods(sequencesNamespace).GetLogs(pods.Items[j].Name, &corev1.PodLogOptions{}).DoRaw(ctx); err == nil {
				logs[step.Name] += string(content)
			}
		}
	}
	return logs
}
