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

// Cluster is where the logs are, of one SequentialJob.
type Cluster interface {
	// Pods are those that carry the SequentialJob's label.
	Pods(ctx context.Context) ([]corev1.Pod, error)
	Pod(ctx context.Context, name string) (*corev1.Pod, error)
	Log(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Options say which logs are told, and how.
type Options struct {
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

// Teller tells logs.
type Teller struct{ desk }

// New is a Teller that has looked at what there is.
func New(ctx context.Context, cluster Cluster, sj *v1alpha1.SequentialJob, options Options) (*Teller, error) {
	t := &Teller{newDesk(cluster, options)}
	pods, err := cluster.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for _, step := range t.steps(sj) {
		for _, s := range t.sources(sj, step, pods) {
			t.early[s.unlabelled()] = true
		}
	}
	return t, nil
}

// Tell tells the logs as they are now, one after another.
func (t *Teller) Tell(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	pods, err := t.cluster.Pods(ctx)
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	begun := false
	var failures []error
	for _, step := range t.steps(sj) {
		found := t.sources(sj, step, pods)
		for _, s := range found {
			begun = true
			if err := t.read(ctx, s); err != nil {
				failures = append(failures, err)
			}
		}
		if len(found) == 0 && t.noteAbsence(sj, step, pods) {
			begun = true
		}
	}
	if !begun {
		t.printer.note("there are no logs yet: no step has begun")
	}
	return errors.Join(failures...)
}

func (t *Teller) sources(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) []source {
	return sources(sj, step, podsOf(sj, step, pods, t.options.AllAttempts), t.options.AllAttempts)
}

func (t *Teller) read(ctx context.Context, s source) error {
	r := &reader{cluster: t.cluster, printer: t.printer, options: t.options, late: !t.early[s.unlabelled()]}
	return r.read(ctx, s)
}

// noteAbsence says why the step has no log, if it should have.
func (t *Teller) noteAbsence(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod) bool {
	why := absence(sj, step, podsOf(sj, step, pods, t.options.AllAttempts))
	if why != "" {
		t.printer.note(why)
	}
	return why != ""
}

// unlabelled is the source without its label, which may change while a step has but one Pod.
func (s source) unlabelled() source {
	s.label = ""
	return s
}

// Steps are the names of the SequentialJob's steps, in order.
func Steps(sj *v1alpha1.SequentialJob) []string {
	var names []string
	for _, steps := range [][]v1alpha1.Step{sj.Spec.Containers, sj.Spec.Finally} {
		for i := range steps {
			names = append(names, steps[i].Name)
		}
	}
	return names
}

// steps are those whose logs are told.
func (t *Teller) steps(sj *v1alpha1.SequentialJob) []string {
	if t.options.Step != "" {
		return []string{t.options.Step}
	}
	return Steps(sj)
}
