package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PodClient is where the logs are, of one SequentialJob.
type PodClient interface {
	// ListPods are those that carry the SequentialJob's label.
	ListPods(ctx context.Context) ([]corev1.Pod, error)
	GetPod(ctx context.Context, name string) (*corev1.Pod, error)
	OpenLog(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
}

// StreamOptions say which logs are told, and how.
type StreamOptions struct {
	// Step whose logs are told; all of them if it is empty.
	Step string
	// Follow goes on until the run has ended.
	Follow bool
	// AllAttempts tells also of earlier attempts and runs.
	AllAttempts bool
	Timestamps  bool
	// Tail is how many lines of each log are told, and Since the time from which on. They
	// hold for logs that are there when the command begins.
	Tail  *int64
	Since time.Time
	// Retry is the wait before a log that broke off is asked for again.
	Retry time.Duration

	Out, ErrOut io.Writer
	Style       terminal.Style
}

// Streamer tells logs.
type Streamer struct{ logSource }

// NewStreamer is a Teller that has looked at what there is.
func NewStreamer(ctx context.Context, cluster PodClient, sj *v1alpha1.SequentialJob, options StreamOptions) (*Streamer, error) {
	t := &Streamer{newLogSource(cluster, options)}
	pods, err := cluster.ListPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for _, step := range t.selectedSteps(sj) {
		for _, s := range t.stepLogs(sj, step, pods) {
			t.existing[s.withoutLabel()] = true
		}
	}
	return t, nil
}

// PrintCurrent tells the logs as they are now, one after another.
func (t *Streamer) PrintCurrent(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	pods, err := t.podClient.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	begun := false
	var failures []error
	for _, step := range t.selectedSteps(sj) {
		found := t.stepLogs(sj, step, pods)
		for _, s := range found {
			begun = true
			if err := t.printLog(ctx, s); err != nil {
				failures = append(failures, err)
			}
		}
		if len(found) == 0 && t.reportMissingLog(sj, step, pods) {
			begun = true
		}
	}
	if !begun {
		t.printer.printNotice("there are no logs yet: no step has begun")
	}
	return errors.Join(failures...)
}

func (t *Streamer) stepLogs(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) []containerLog {
	return containerLogsOf(sj, step, podsOfStep(sj, step, pods, t.options.AllAttempts), t.options.AllAttempts)
}

func (t *Streamer) printLog(ctx context.Context, s containerLog) error {
	r := &logReader{podClient: t.podClient, printer: t.printer, options: t.options, startedLater: !t.existing[s.withoutLabel()]}
	return r.readToEnd(ctx, s)
}

// reportMissingLog says why the step has no log, if it should have.
func (t *Streamer) reportMissingLog(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) bool {
	why := missingLogReason(sj, step, podsOfStep(sj, step, pods, t.options.AllAttempts))
	if why != "" {
		t.printer.printNotice(why)
	}
	return why != ""
}

// withoutLabel is the source without its label, which may change while a step has but one Pod.
func (s containerLog) withoutLabel() containerLog {
	s.label = ""
	return s
}

// StepNames are the names of the SequentialJob's steps, in order.
func StepNames(sj *v1alpha1.SequentialJob) []string {
	var names []string
	for _, steps := range [][]v1alpha1.Step{sj.Spec.Containers, sj.Spec.Finally} {
		for i := range steps {
			names = append(names, steps[i].Name)
		}
	}
	return names
}

// selectedSteps are those whose logs are told.
func (t *Streamer) selectedSteps(sj *v1alpha1.SequentialJob) []string {
	if t.options.Step != "" {
		return []string{t.options.Step}
	}
	return StepNames(sj)
}
