package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/session"
)

// SessionWorld is what a follower of a session sees change.
type SessionWorld struct {
	Sessions <-chan follow.Sight[*v1alpha1.AgenticSession]
	Pods     <-chan follow.Sight[*corev1.Pod]
	// Trouble is why something cannot be seen; what passes by itself is not in it.
	Trouble <-chan error
}

// SessionTeller tells the logs of a session's runner, one attempt after another.
type SessionTeller struct {
	desk

	// container whose logs are told, and first the attempt with which they begin.
	container string
	first     ordinal
	// told are the logs that are read.
	told map[source]bool
}

// NewSession is a teller that has looked at what there is.
func NewSession(ctx context.Context, cluster Cluster, s *v1alpha1.AgenticSession, container string, options Options) (*SessionTeller, error) {
	t := &SessionTeller{desk: newDesk(cluster, options), container: container, first: ordinalOf(lastJob(s)), told: map[source]bool{}}
	pods, err := cluster.Pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for _, source := range t.sources(s, pods) {
		t.early[source] = true
	}
	return t, nil
}

// Tell tells the logs as they are now.
func (t *SessionTeller) Tell(ctx context.Context, s *v1alpha1.AgenticSession) error {
	pods, err := t.cluster.Pods(ctx)
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	err = t.readAll(ctx, s, pods)
	t.noteAbsence(s, pods)
	return err
}

// Follow tells the logs until the session rests, as over says, and all is told.
func (t *SessionTeller) Follow(ctx context.Context, s *v1alpha1.AgenticSession, over func(*v1alpha1.AgenticSession) bool, world SessionWorld) error {
	pods, gone := map[string]corev1.Pod{}, false
	var failures []error
	for !gone && !over(s) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-world.Trouble:
			return err
		case sight := <-world.Sessions:
			same := sight.Object.UID == s.UID // not another that has got the name since
			gone = sight.Gone || !same
			if same && sight.Object.Generation >= s.Generation {
				s = sight.Object
			}
		case sight := <-world.Pods:
			pods[sight.Object.Name] = *sight.Object
			if sight.Gone {
				delete(pods, sight.Object.Name)
			}
		}
		// One attempt ends before the next begins, so each is read to its end.
		failures = append(failures, t.readAll(ctx, s, slices.Collect(maps.Values(pods))))
	}
	// What of its Pods has not been seen is asked for.
	rest, err := t.listed(ctx)
	if err != nil {
		return err
	}
	failures = append(failures, t.readAll(ctx, s, rest))
	t.noteAbsence(s, rest)
	return errors.Join(append(failures, ctx.Err())...)
}

// readAll tells what has not been told.
func (t *SessionTeller) readAll(ctx context.Context, s *v1alpha1.AgenticSession, pods []corev1.Pod) error {
	var failures []error
	for _, source := range t.sources(s, pods) {
		if t.told[source] {
			continue
		}
		t.told[source] = true
		r := &reader{cluster: t.cluster, printer: t.printer, options: t.options, late: !t.early[source]}
		failures = append(failures, r.read(ctx, source))
	}
	return errors.Join(failures...)
}

// attemptOfJob is how the name of an attempt's Job ends.
var attemptOfJob = regexp.MustCompile(`r\d+-a\d+$`)

// ordinal is which attempt at which run something is.
type ordinal struct{ run, attempt int }

// ordinalOf a Job, by its name; nothing if it is none of a session.
func ordinalOf(job string) ordinal {
	var o ordinal
	if _, err := fmt.Sscanf(attemptOfJob.FindString(job), "r%d-a%d", &o.run, &o.attempt); err != nil {
		return ordinal{}
	}
	return o
}

func (o ordinal) before(other ordinal) bool {
	return cmp.Or(cmp.Compare(o.run, other.run), cmp.Compare(o.attempt, other.attempt)) < 0
}

// sources are the logs of the session's Pods, the oldest first: from the attempt on that was
// the last when the command began, or of all.
func (t *SessionTeller) sources(s *v1alpha1.AgenticSession, pods []corev1.Pod) []source {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return byAge(&a, &b) })
	var found []source
	for i := range pods {
		job := jobOf(s, &pods[i])
		if job == "" || !t.options.AllAttempts && ordinalOf(job).before(t.first) {
			continue
		}
		name := attemptOfJob.FindString(job)
		for _, status := range statuses(&pods[i]) {
			if status.Name != t.container || !hasLog(status) {
				continue
			}
			// A sidecar may have been started anew.
			found = append(found, source{
				step: name, attempt: true, pod: pods[i].Name, container: status.Name, restarts: status.RestartCount, label: cmp.Or(name, job),
			})
		}
	}
	return found
}

// jobOf is the Job that made a Pod of the session; nothing if the Pod is another's.
func jobOf(s *v1alpha1.AgenticSession, pod *corev1.Pod) string {
	job := metav1.GetControllerOf(pod)
	if job == nil || pod.Labels[session.LabelSessionUID] != string(s.UID) {
		return ""
	}
	return job.Name
}

// lastJob is the Job of the attempt under way, or of the one that ended last.
func lastJob(s *v1alpha1.AgenticSession) string {
	if s.Status.Job != "" {
		return s.Status.Job
	}
	for _, run := range slices.Backward(s.Status.Runs) {
		if run.Job != "" {
			return run.Job
		}
	}
	return ""
}

// noteAbsence says why there is nothing of the last attempt.
func (t *SessionTeller) noteAbsence(s *v1alpha1.AgenticSession, pods []corev1.Pod) {
	job := lastJob(s)
	for told := range t.told {
		if told.step == attemptOfJob.FindString(job) {
			return
		}
	}
	if job == "" {
		t.printer.note("there are no logs yet: no attempt has begun")
		return
	}
	for i := range pods {
		if jobOf(s, &pods[i]) == job {
			t.printer.note(fmt.Sprintf("attempt %s has no log: container %s of Pod %s has not started%s",
				attemptOfJob.FindString(job), t.container, pods[i].Name, waiting(&pods[i])))
			return
		}
	}
	t.printer.note(fmt.Sprintf("attempt %s has no log: there is no Pod of its Job %s", attemptOfJob.FindString(job), job))
}
