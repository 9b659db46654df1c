package logs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SequenceStreamer prints the logs of a SequentialJob's steps.
type SequenceStreamer struct{ logSource }

// NewSequenceStreamer returns a streamer that remembers which logs exist now.
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

// reportMissingLog prints why a started step has no log. It reports whether the step has started.
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
	for i := range sj.Spec.Containers {
		names = append(names, sj.Spec.Containers[i].Name)
	}
	return names
}

func (s *SequenceStreamer) selectedSteps(sj *v1alpha1.SequentialJob) []string {
	if s.options.Step != "" {
		return []string{s.options.Step}
	}
	return StepNames(sj)
}

// sequenceFollower prints the logs of one step after another while the sequence runs.
//
// It opens a step's logs as soon as their containers start and reads them from the first line. It prints the next step only after
// they have all ended, so that the output is in the order of the steps even if a last line arrives late.
type sequenceFollower struct {
	*SequenceStreamer
	*changeTracker[*v1alpha1.SequentialJob]

	isFinished func(*v1alpha1.SequentialJob) bool
	readers    sync.WaitGroup
	opened     map[containerLog]bool
	mutex      sync.Mutex
	failures   []error
}

// Follow prints the logs until isFinished reports the end of the run and all logs are printed.
func (s *SequenceStreamer) Follow(
	ctx context.Context, sj *v1alpha1.SequentialJob, isFinished func(*v1alpha1.SequentialJob) bool, changes Changes[*v1alpha1.SequentialJob],
) error {
	ctx, stop := context.WithCancel(ctx)
	f := &sequenceFollower{SequenceStreamer: s, changeTracker: newChangeTracker(sj, changes), isFinished: isFinished, opened: map[containerLog]bool{}}
	defer f.readers.Wait()
	defer stop()
	for printed := map[string]bool{}; ; {
		// The spec may have changed since the last step, and then has other steps.
		steps := f.selectedSteps(f.object)
		next := slices.IndexFunc(steps, func(step string) bool { return !printed[step] })
		if next < 0 {
			return errors.Join(f.failures...)
		}
		step := steps[next]
		printed[step] = true
		if err := f.followStep(ctx, step); err != nil {
			return err
		}
	}
}

func (f *sequenceFollower) followStep(ctx context.Context, step string) error {
	for !f.deleted && !f.isFinished(f.object) {
		// If a pending rerun will repeat the step, its status still has the last outcome, and the run a completion time.
		if isStepFinished(findStepStatus(f.object, step).Phase) && f.object.Status.CompletionTime == nil {
			break
		}
		for _, l := range f.takeUnopenedLogs(step, slices.Collect(maps.Values(f.pods))) {
			f.readers.Go(func() { f.collectError(f.printLog(ctx, l)) })
		}
		if err := f.waitForChange(ctx); err != nil {
			return err
		}
	}
	// The step has finished, but the watch may not have delivered all of its Pods yet.
	pods, err := f.listPodsWithRetry(ctx)
	if err != nil {
		return err
	}
	f.readers.Wait()
	for _, l := range f.takeUnopenedLogs(step, pods) {
		f.collectError(f.printLog(ctx, l))
	}
	for l := range f.opened {
		if l.owner == step {
			return ctx.Err()
		}
	}
	f.reportMissingLog(f.object, step, pods)
	return ctx.Err()
}

// takeUnopenedLogs returns the step's logs that no reader has opened, and marks them opened.
func (f *sequenceFollower) takeUnopenedLogs(step string, pods []corev1.Pod) []containerLog {
	return slices.DeleteFunc(f.stepLogs(f.object, step, pods), func(l containerLog) bool {
		isOpened := f.opened[l.withoutLabel()]
		f.opened[l.withoutLabel()] = true
		return isOpened
	})
}

func (f *sequenceFollower) collectError(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err != nil {
		f.failures = append(f.failures, err)
	}
}
