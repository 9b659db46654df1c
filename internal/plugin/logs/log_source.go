package logs

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PodClient reads the Pods of one object and their logs.
type PodClient interface {
	// ListPods lists the Pods with the object's label.
	ListPods(ctx context.Context) ([]corev1.Pod, error)
	GetPod(ctx context.Context, name string) (*corev1.Pod, error)
	OpenLog(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
}

// StreamOptions select logs and their output.
type StreamOptions struct {
	// Step selects the logs of one step of a SequentialJob; empty for all steps.
	Step string
	// Container selects the logs of one container of an AgenticSession's Pods.
	Container string
	// Follow continues until the run finishes.
	Follow bool
	// AllAttempts includes earlier attempts and runs.
	AllAttempts bool
	Timestamps  bool
	// Tail is the number of lines to print of each log, and Since the time of the first line. They apply to logs that exist at the
	// start. A nil Tail and a zero Since print all lines.
	Tail  *int64
	Since time.Time
	// Retry is the wait before an interrupted log is requested again.
	Retry time.Duration

	Out, ErrOut io.Writer
	Style       terminal.Style
	// Render returns the lines to print for a line of a log; nil prints each line unchanged.
	Render func(line []byte) []string
}

// logSource is the common part of all streamers.
type logSource struct {
	podClient PodClient
	options   StreamOptions
	printer   *linePrinter
	// existing are the logs that exist at the start, without their labels.
	existing map[containerLog]bool
}

func newLogSource(podClient PodClient, options StreamOptions) logSource {
	return logSource{
		podClient: podClient, options: options, existing: map[containerLog]bool{},
		printer: &linePrinter{out: options.Out, errOut: options.ErrOut, style: options.Style, render: options.Render, ownerColors: map[string]terminal.Color{}},
	}
}

func (s *logSource) listPods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.podClient.ListPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	return pods, nil
}

// listPodsWithRetry retries until the API server answers.
func (s *logSource) listPodsWithRetry(ctx context.Context) ([]corev1.Pod, error) {
	for isRetry := false; ; isRetry = true {
		pods, err := s.podClient.ListPods(ctx)
		if err == nil || apierrors.IsForbidden(err) {
			return pods, err
		}
		if !isRetry {
			s.printer.printNotice("listing Pods: %v; retrying", err)
		}
		if err := clock.SleepContext(ctx, s.options.Retry); err != nil {
			return nil, err
		}
	}
}

func (s *logSource) printLog(ctx context.Context, l containerLog) error {
	r := &logReader{podClient: s.podClient, printer: s.printer, options: s.options, startedLater: !s.existing[l.withoutLabel()]}
	return r.readToEnd(ctx, l)
}

// Changes are the changes of an object and its Pods.
type Changes[T client.Object] struct {
	Objects <-chan follow.ObjectUpdate[T]
	Pods    <-chan follow.ObjectUpdate[*corev1.Pod]
	// Errors receives only errors for which a retry cannot succeed.
	Errors <-chan error
}

type changeTracker[T client.Object] struct {
	changes Changes[T]
	object  T
	deleted bool
	pods    map[string]corev1.Pod
}

func newChangeTracker[T client.Object](object T, changes Changes[T]) *changeTracker[T] {
	return &changeTracker[T]{object: object, changes: changes, pods: map[string]corev1.Pod{}}
}

func (t *changeTracker[T]) waitForChange(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-t.changes.Errors:
		return err
	case update := <-t.changes.Objects:
		sameObject := update.Object.GetUID() == t.object.GetUID() // not a new object with the same name
		t.deleted = update.Deleted || !sameObject
		if sameObject && update.Object.GetGeneration() >= t.object.GetGeneration() {
			t.object = update.Object
		}
	case update := <-t.changes.Pods:
		if update.Deleted {
			delete(t.pods, update.Object.Name)
		} else {
			t.pods[update.Object.Name] = *update.Object
		}
	}
	return nil
}
