package logs

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SequenceStreamer prints the logs of a SequentialJob's steps.
type SequenceStreamer struct{ logSource }

// NewSequenceStreamer returns a streamer that knows which logs exist now.
func NewSequenceStreamer(ctx context.Context, podClient PodClient, sj *v1alpha1.SequentialJob, options StreamOptions) (*SequenceStreamer, error) {
	s := &SequenceStreamer{newLogSource(podClient, options)}
	pods, err := s.listPods(ctx)
	if err != nil {
		return nil, err
	}
	for _, step := range s.selectedSteps(sj) {
		for _, l := range s.stepLogs(sj, step, pods) {
			s.existing[l.withoutLabel()] = true
		}
	}
	return s, nil
}

// PrintCurrent prints the logs that exist now, step after step.
func (s *SequenceStreamer) PrintCurrent(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	pods, err := s.listPods(ctx)
	if err != nil {
		return err
	}
	anyStarted := false
	var failures []error
	for _, step := range s.selectedSteps(sj) {
		logs := s.stepLogs(sj, step, pods)
		for _, l := range logs {
			anyStarted = true
			failures = append(failures, s.printLog(ctx, l))
		}
		if len(logs) == 0 && s.reportMissingLog(sj, step, pods) {
			anyStarted = true
		}
	}
	if !anyStarted {
		s.printer.printNotice("no logs yet: no step has started")
	}
	return errors.Join(failures...)
}

func (s *SequenceStreamer) stepLogs(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) []containerLog {
	return containerLogsOf(sj, step, podsOfStep(sj, step, pods, s.options.AllAttempts), s.options.AllAttempts)
}

// reportMissingLog prints why a started step has no log. It reports whether the step has
// started.
func (s *SequenceStreamer) reportMissingLog(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) bool {
	reason := missingLogReason(sj, step, podsOfStep(sj, step, pods, s.options.AllAttempts))
	if reason != "" {
		s.printer.printNotice("%s", reason)
	}
	return reason != ""
}

// StepNames returns the names of the SequentialJob's steps in order.
func StepNames(sj *v1alpha1.SequentialJob) []string {
	var names []string
	for _, steps := range [][]v1alpha1.Step{sj.Spec.Containers, sj.Spec.Finally} {
		for i := range steps {
			names = append(names, steps[i].Name)
		}
	}
	return names
}

func (s *SequenceStreamer) selectedSteps(sj *v1alpha1.SequentialJob) []string {
	if s.options.Step != "" {
		return []string{s.options.Step}
	}
	return StepNames(sj)
}
