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
	Sessions <-chan follow.ObjectUpdate[*v1alpha1.AgenticSession]
	Pods     <-chan follow.ObjectUpdate[*corev1.Pod]
	// Trouble is why something cannot be seen; what passes by itself is not in it.
	Trouble <-chan error
}

// SessionStreamer tells the logs of a session's runner, one attempt after another.
type SessionStreamer struct {
	logSource

	// container whose logs are told, and first the attempt with which they begin.
	container    string
	firstAttempt attemptNumber
	// opened are the logs that are read.
	opened map[containerLog]bool
}

// NewSessionStreamer is a teller that has looked at what there is.
func NewSessionStreamer(ctx context.Context, cluster PodClient, s *v1alpha1.AgenticSession, container string, options StreamOptions) (*SessionStreamer, error) {
	t := &SessionStreamer{logSource: newLogSource(cluster, options), container: container, firstAttempt: parseAttemptNumber(lastJobName(s)), opened: map[containerLog]bool{}}
	pods, err := cluster.ListPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for _, source := range t.runnerLogs(s, pods) {
		t.existing[source] = true
	}
	return t, nil
}

// PrintCurrent tells the logs as they are now.
func (t *SessionStreamer) PrintCurrent(ctx context.Context, s *v1alpha1.AgenticSession) error {
	pods, err := t.podClient.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	err = t.printUnread(ctx, s, pods)
	t.reportMissingLog(s, pods)
	return err
}

// Follow tells the logs until the session rests, as over says, and all is told.
func (t *SessionStreamer) Follow(ctx context.Context, s *v1alpha1.AgenticSession, over func(*v1alpha1.AgenticSession) bool, world SessionWorld) error {
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
			gone = sight.Deleted || !same
			if same && sight.Object.Generation >= s.Generation {
				s = sight.Object
			}
		case sight := <-world.Pods:
			pods[sight.Object.Name] = *sight.Object
			if sight.Deleted {
				delete(pods, sight.Object.Name)
			}
		}
		// One attempt ends before the next begins, so each is read to its end.
		failures = append(failures, t.printUnread(ctx, s, slices.Collect(maps.Values(pods))))
	}
	// What of its Pods has not been seen is asked for.
	rest, err := t.listPodsWithRetry(ctx)
	if err != nil {
		return err
	}
	failures = append(failures, t.printUnread(ctx, s, rest))
	t.reportMissingLog(s, rest)
	return errors.Join(append(failures, ctx.Err())...)
}

// printUnread tells what has not been told.
func (t *SessionStreamer) printUnread(ctx context.Context, s *v1alpha1.AgenticSession, pods []corev1.Pod) error {
	var failures []error
	for _, source := range t.runnerLogs(s, pods) {
		if t.opened[source] {
			continue
		}
		t.opened[source] = true
		r := &logReader{podClient: t.podClient, printer: t.printer, options: t.options, startedLater: !t.existing[source]}
		failures = append(failures, r.readToEnd(ctx, source))
	}
	return errors.Join(failures...)
}

// attemptSuffix is how the name of an attempt's Job ends.
var attemptSuffix = regexp.MustCompile(`r\d+-a\d+$`)

// attemptNumber is which attempt at which run something is.
type attemptNumber struct{ run, attempt int }

// parseAttemptNumber a Job, by its name; nothing if it is none of a session.
func parseAttemptNumber(job string) attemptNumber {
	var o attemptNumber
	if _, err := fmt.Sscanf(attemptSuffix.FindString(job), "r%d-a%d", &o.run, &o.attempt); err != nil {
		return attemptNumber{}
	}
	return o
}

func (o attemptNumber) isBefore(other attemptNumber) bool {
	return cmp.Or(cmp.Compare(o.run, other.run), cmp.Compare(o.attempt, other.attempt)) < 0
}

// runnerLogs are the logs of the session's Pods, the oldest first: from the attempt on that was
// the last when the command began, or of all.
func (t *SessionStreamer) runnerLogs(s *v1alpha1.AgenticSession, pods []corev1.Pod) []containerLog {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return compareByAge(&a, &b) })
	var found []containerLog
	for i := range pods {
		job := sessionJobName(s, &pods[i])
		if job == "" || !t.options.AllAttempts && parseAttemptNumber(job).isBefore(t.firstAttempt) {
			continue
		}
		name := attemptSuffix.FindString(job)
		for _, status := range containerStatuses(&pods[i]) {
			if status.Name != t.container || !hasContainerLog(status) {
				continue
			}
			// A sidecar may have been started anew.
			found = append(found, containerLog{
				owner: name, ownerIsAttempt: true, podName: pods[i].Name, container: status.Name, restartCount: status.RestartCount, label: cmp.Or(name, job),
			})
		}
	}
	return found
}

// sessionJobName is the Job that made a Pod of the session; nothing if the Pod is another's.
func sessionJobName(s *v1alpha1.AgenticSession, pod *corev1.Pod) string {
	job := metav1.GetControllerOf(pod)
	if job == nil || pod.Labels[session.LabelSessionUID] != string(s.UID) {
		return ""
	}
	return job.Name
}

// lastJobName is the Job of the attempt under way, or of the one that ended last.
func lastJobName(s *v1alpha1.AgenticSession) string {
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

// reportMissingLog says why there is nothing of the last attempt.
func (t *SessionStreamer) reportMissingLog(s *v1alpha1.AgenticSession, pods []corev1.Pod) {
	job := lastJobName(s)
	for told := range t.opened {
		if told.owner == attemptSuffix.FindString(job) {
			return
		}
	}
	if job == "" {
		t.printer.printNotice("there are no logs yet: no attempt has begun")
		return
	}
	for i := range pods {
		if sessionJobName(s, &pods[i]) == job {
			t.printer.printNotice(fmt.Sprintf("attempt %s has no log: container %s of Pod %s has not started%s",
				attemptSuffix.FindString(job), t.container, pods[i].Name, waitingReason(&pods[i])))
			return
		}
	}
	t.printer.printNotice(fmt.Sprintf("attempt %s has no log: there is no Pod of its Job %s", attemptSuffix.FindString(job), job))
}
