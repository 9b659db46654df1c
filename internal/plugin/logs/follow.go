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
	SequentialJobs <-chan follow.Sight[*v1alpha1.SequentialJob]
	Pods           <-chan follow.Sight[*corev1.Pod]
	// Trouble is why something cannot be seen; what passes by itself is not in it.
	Trouble <-chan error
}

// follower tells the logs of one step after another while the sequence gets on.
//
// A step's logs are opened as soon as their containers start, and read from their first
// line on. The next step's are not told before they have all ended, so the steps stand one
// after another even where a last line arrives late.
type follower struct {
	*Teller

	sj    *v1alpha1.SequentialJob
	ended func(*v1alpha1.SequentialJob) bool
	world World
	pods  map[string]*corev1.Pod
	gone  bool

	readers  sync.WaitGroup
	opened   map[source]bool
	mutex    sync.Mutex
	failures []error
}

// Follow tells the logs until the sequence has ended, as ended says, and all is told.
func (t *Teller) Follow(ctx context.Context, sj *v1alpha1.SequentialJob, ended func(*v1alpha1.SequentialJob) bool, world World) error {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{Teller: t, sj: sj, ended: ended, world: world, pods: map[string]*corev1.Pod{}, opened: map[source]bool{}}
	defer f.readers.Wait()
	defer stop()
	for told := map[string]bool{}; ; {
		step := f.next(told)
		if step == "" {
			return errors.Join(f.failures...)
		}
		told[step] = true
		if err := f.step(ctx, step); err != nil {
			return err
		}
	}
}

// next is the first step that is not told yet. The spec may have changed since the last.
func (f *follower) next(told map[string]bool) string {
	for _, step := range f.steps(f.sj) {
		if !told[step] {
			return step
		}
	}
	return ""
}

// step tells one step's logs.
func (f *follower) step(ctx context.Context, step string) error {
	for !f.done(step) {
		for _, s := range f.unread(step, f.seen()) {
			f.readers.Go(func() { f.keep(f.read(ctx, s)) })
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	// The step is over. What of its Pods has not been seen is asked for.
	pods, err := f.listed(ctx)
	if err != nil {
		return err
	}
	f.readers.Wait()
	for _, s := range f.unread(step, pods) {
		f.keep(f.read(ctx, s))
	}
	if !f.hasOpened(step) {
		f.noteAbsence(f.sj, step, pods)
	}
	return ctx.Err()
}

// done reports whether nothing more comes of the step. A step that a rerun is about to
// repeat is not done, although its last outcome is there.
func (f *follower) done(step string) bool {
	return f.gone || f.ended(f.sj) || over(recordOf(f.sj, step).Phase) && f.sj.Status.CompletionTime == nil
}

// unread are the step's logs that nobody reads yet. From now on somebody does.
func (f *follower) unread(step string, pods []corev1.Pod) []source {
	return slices.DeleteFunc(f.sources(f.sj, step, pods), func(s source) bool {
		known := f.opened[s.unlabelled()]
		f.opened[s.unlabelled()] = true
		return known
	})
}

func (f *follower) hasOpened(step string) bool {
	for s := range f.opened {
		if s.step == step {
			return true
		}
	}
	return false
}

func (f *follower) keep(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err != nil {
		f.failures = append(f.failures, err)
	}
}

// seen are the Pods as last seen.
func (f *follower) seen() []corev1.Pod {
	pods := make([]corev1.Pod, 0, len(f.pods))
	for _, pod := range f.pods {
		pods = append(pods, *pod)
	}
	return pods
}

// wait waits until something changes.
func (f *follower) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-f.world.Trouble:
		return err
	case sight := <-f.world.SequentialJobs:
		same := sight.Object.UID == f.sj.UID // not another that has got the name since
		f.gone = sight.Gone || !same
		if same && sight.Object.Generation >= f.sj.Generation {
			f.sj = sight.Object
		}
	case sight := <-f.world.Pods:
		if sight.Gone {
			delete(f.pods, sight.Object.Name)
		} else {
			f.pods[sight.Object.Name] = sight.Object
		}
	}
	return nil
}
