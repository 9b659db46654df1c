package logs

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// World is what a follower sees change.
type World struct {
	SequentialJobs <-chan follow.ObjectUpdate[*v1alpha1.SequentialJob]
	Pods           <-chan follow.ObjectUpdate[*corev1.Pod]
	// Trouble is why something cannot be seen; what passes by itself is not in it.
	Trouble <-chan error
}

// sequenceFollower tells the logs of one step after another while the sequence gets on.
//
// A step's logs are opened as soon as their containers start, and read from their first
// line on. The next step's are not told before they have all ended, so the steps stand one
// after another even where a last line arrives late.
type sequenceFollower struct {
	*Streamer

	sj         *v1alpha1.SequentialJob
	isFinished func(*v1alpha1.SequentialJob) bool
	world      World
	pods       map[string]*corev1.Pod
	deleted    bool

	readers  sync.WaitGroup
	opened   map[containerLog]bool
	mutex    sync.Mutex
	failures []error
}

// Follow tells the logs until the sequence has ended, as ended says, and all is told.
func (t *Streamer) Follow(ctx context.Context, sj *v1alpha1.SequentialJob, ended func(*v1alpha1.SequentialJob) bool, world World) error {
	ctx, stop := context.WithCancel(ctx)
	f := &sequenceFollower{Streamer: t, sj: sj, isFinished: ended, world: world, pods: map[string]*corev1.Pod{}, opened: map[containerLog]bool{}}
	defer f.readers.Wait()
	defer stop()
	for told := map[string]bool{}; ; {
		step := f.nextStep(told)
		if step == "" {
			return errors.Join(f.failures...)
		}
		told[step] = true
		if err := f.followStep(ctx, step); err != nil {
			return err
		}
	}
}

// nextStep is the first step that is not told yet. The spec may have changed since the last.
func (f *sequenceFollower) nextStep(told map[string]bool) string {
	for _, step := range f.selectedSteps(f.sj) {
		if !told[step] {
			return step
		}
	}
	return ""
}

// followStep tells one step's logs.
func (f *sequenceFollower) followStep(ctx context.Context, step string) error {
	for !f.isStepDone(step) {
		for _, s := range f.takeUnopenedLogs(step, f.knownPods()) {
			f.readers.Go(func() { f.collectError(f.printLog(ctx, s)) })
		}
		if err := f.waitForChange(ctx); err != nil {
			return err
		}
	}
	// The step is over. What of its Pods has not been seen is asked for.
	pods, err := f.listPodsWithRetry(ctx)
	if err != nil {
		return err
	}
	f.readers.Wait()
	for _, s := range f.takeUnopenedLogs(step, pods) {
		f.collectError(f.printLog(ctx, s))
	}
	if !f.hasOpenedLog(step) {
		f.reportMissingLog(f.sj, step, pods)
	}
	return ctx.Err()
}

// isStepDone reports whether nothing more comes of the step. A step that a rerun is about to
// repeat is not done, although its last outcome is there.
func (f *sequenceFollower) isStepDone(step string) bool {
	return f.deleted || f.isFinished(f.sj) || isStepFinished(findStepStatus(f.sj, step).Phase) && f.sj.Status.CompletionTime == nil
}

// takeUnopenedLogs are the step's logs that nobody reads yet. From now on somebody does.
func (f *sequenceFollower) takeUnopenedLogs(step string, pods []corev1.Pod) []containerLog {
	return slices.DeleteFunc(f.stepLogs(f.sj, step, pods), func(s containerLog) bool {
		known := f.opened[s.withoutLabel()]
		f.opened[s.withoutLabel()] = true
		return known
	})
}

func (f *sequenceFollower) hasOpenedLog(step string) bool {
	for s := range f.opened {
		if s.owner == step {
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

// knownPods are the Pods as last seen.
func (f *sequenceFollower) knownPods() []corev1.Pod {
	pods := make([]corev1.Pod, 0, len(f.pods))
	for _, pod := range f.pods {
		pods = append(pods, *pod)
	}
	return pods
}

// waitForChange waits until something changes.
func (f *sequenceFollower) waitForChange(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-f.world.Trouble:
		return err
	case sight := <-f.world.SequentialJobs:
		same := sight.Object.UID == f.sj.UID // not another that has got the name since
		f.deleted = sight.Deleted || !same
		if same && sight.Object.Generation >= f.sj.Generation {
			f.sj = sight.Object
		}
	case sight := <-f.world.Pods:
		if sight.Deleted {
			delete(f.pods, sight.Object.Name)
		} else {
			f.pods[sight.Object.Name] = sight.Object
		}
	}
	return nil
}
