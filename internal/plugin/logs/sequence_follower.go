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

// sequenceFollower prints the logs of one step after another while the sequence runs.
//
// It opens a step's logs as soon as their containers start and reads them from the first
// line. It prints the next step only after they have all ended, so that the output is in the
// order of the steps even if a last line arrives late.
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
		step := f.nextStep(printed)
		if step == "" {
			return errors.Join(f.failures...)
		}
		printed[step] = true
		if err := f.followStep(ctx, step); err != nil {
			return err
		}
	}
}

// nextStep returns the first step that is not printed, or "". It reads the spec again, which
// may have changed.
func (f *sequenceFollower) nextStep(printed map[string]bool) string {
	for _, step := range f.selectedSteps(f.object) {
		if !printed[step] {
			return step
		}
	}
	return ""
}

func (f *sequenceFollower) followStep(ctx context.Context, step string) error {
	for !f.isStepDone(step) {
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
	if !f.hasOpenedLog(step) {
		f.reportMissingLog(f.object, step, pods)
	}
	return ctx.Err()
}

// isStepDone reports whether the step creates no more logs. A step that a pending rerun will
// repeat is not done, although its status still has the last outcome.
func (f *sequenceFollower) isStepDone(step string) bool {
	return f.deleted || f.isFinished(f.object) || isStepFinished(findStepStatus(f.object, step).Phase) && f.object.Status.CompletionTime == nil
}

// takeUnopenedLogs returns the step's logs that no reader has opened, and marks them opened.
func (f *sequenceFollower) takeUnopenedLogs(step string, pods []corev1.Pod) []containerLog {
	return slices.DeleteFunc(f.stepLogs(f.object, step, pods), func(l containerLog) bool {
		isOpened := f.opened[l.withoutLabel()]
		f.opened[l.withoutLabel()] = true
		return isOpened
	})
}

func (f *sequenceFollower) hasOpenedLog(step string) bool {
	for l := range f.opened {
		if l.owner == step {
			return true
		}
	}
	return false
}

func (f *sequenceFollower) collectError(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err != nil {
		f.failures = append(f.failures, err)
	}
}
