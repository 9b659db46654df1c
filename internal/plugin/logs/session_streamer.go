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
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
)

// SessionStreamer prints the logs of a session's runner, attempt after attempt.
type SessionStreamer struct {
	logSource

	// firstAttempt is the first attempt whose log is printed without AllAttempts.
	firstAttempt attemptNumber
	opened       map[containerLog]bool
}

// NewSessionStreamer returns a streamer that remembers which logs exist now.
func NewSessionStreamer(ctx context.Context, podClient PodClient, s *v1alpha1.AgenticSession, options StreamOptions) (*SessionStreamer, error) {
	t := &SessionStreamer{
		logSource: newLogSource(podClient, options), firstAttempt: parseAttemptNumber(lastJobName(s)), opened: map[containerLog]bool{},
	}
	pods, err := t.listPods(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range t.runnerLogs(s, pods) {
		t.existing[l.withoutLabel()] = true
	}
	return t, nil
}

// PrintCurrent prints the logs that exist now.
func (t *SessionStreamer) PrintCurrent(ctx context.Context, s *v1alpha1.AgenticSession) error {
	pods, err := t.listPods(ctx)
	if err != nil {
		return err
	}
	err = t.printUnopened(ctx, s, pods)
	t.reportMissingLog(s, pods)
	return err
}

// Follow prints the logs until isInactive reports that the session has ended and all logs are printed.
func (t *SessionStreamer) Follow(
	ctx context.Context, s *v1alpha1.AgenticSession, isInactive func(*v1alpha1.AgenticSession) bool, changes Changes[*v1alpha1.AgenticSession],
) error {
	tracker := newChangeTracker(s, changes)
	var failures []error
	for !tracker.deleted && !isInactive(tracker.object) {
		if err := tracker.waitForChange(ctx); err != nil {
			return err
		}
		// An attempt ends before the next one starts, so each log is read to its end.
		failures = append(failures, t.printUnopened(ctx, tracker.object, slices.Collect(maps.Values(tracker.pods))))
	}
	// The watch may not have delivered all Pods yet.
	pods, err := t.listPodsWithRetry(ctx)
	if err != nil {
		return err
	}
	failures = append(failures, t.printUnopened(ctx, tracker.object, pods))
	t.reportMissingLog(tracker.object, pods)
	return errors.Join(append(failures, ctx.Err())...)
}

func (t *SessionStreamer) printUnopened(ctx context.Context, s *v1alpha1.AgenticSession, pods []corev1.Pod) error {
	var failures []error
	for _, l := range t.runnerLogs(s, pods) {
		if !t.opened[l] {
			t.opened[l] = true
			failures = append(failures, t.printLog(ctx, l))
		}
	}
	return errors.Join(failures...)
}

// attemptSuffix matches the end of the name of an attempt's Job, such as r1-a2.
var attemptSuffix = regexp.MustCompile(`r\d+-a\d+$`)

// attemptNumber identifies an attempt of a run.
type attemptNumber struct{ run, attempt int }

// parseAttemptNumber parses the name of a session's Job. It returns zeros for other names.
func parseAttemptNumber(job string) attemptNumber {
	var n attemptNumber
	if _, err := fmt.Sscanf(attemptSuffix.FindString(job), "r%d-a%d", &n.run, &n.attempt); err != nil {
		return attemptNumber{}
	}
	return n
}

// runnerLogs returns the logs of the session's Pods, the oldest first: all logs with AllAttempts, otherwise from the last attempt at
// the start.
func (t *SessionStreamer) runnerLogs(s *v1alpha1.AgenticSession, pods []corev1.Pod) []containerLog {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return compareByAge(&a, &b) })
	var found []containerLog
	for i := range pods {
		job := sessionJobName(s, &pods[i])
		number, first := parseAttemptNumber(job), t.firstAttempt
		isEarlier := cmp.Or(cmp.Compare(number.run, first.run), cmp.Compare(number.attempt, first.attempt)) < 0
		if job == "" || !t.options.AllAttempts && isEarlier {
			continue
		}
		attempt := attemptSuffix.FindString(job)
		for _, status := range containerStatuses(&pods[i]) {
			if status.Name != t.options.Container || !hasContainerLog(status) {
				continue
			}
			found = append(found, containerLog{
				owner: attempt, ownerIsAttempt: true, podName: pods[i].Name, container: status.Name, restartCount: status.RestartCount,
				label: cmp.Or(attempt, job),
			})
		}
	}
	return found
}

// sessionJobName returns the name of the session's Job that created the Pod; empty for another Pod.
func sessionJobName(s *v1alpha1.AgenticSession, pod *corev1.Pod) string {
	job := metav1.GetControllerOf(pod)
	if job == nil || pod.Labels[agenticsession.LabelSessionUID] != string(s.UID) {
		return ""
	}
	return job.Name
}

// lastJobName returns the Job of the current attempt, or of the last attempt.
func lastJobName(s *v1alpha1.AgenticSession) string {
	if s.Status.Attempt.JobName != "" {
		return s.Status.Attempt.JobName
	}
	for _, run := range slices.Backward(s.Status.Attempts) {
		if run.JobName != "" {
			return run.JobName
		}
	}
	return ""
}

// reportMissingLog prints why the last attempt has no log.
func (t *SessionStreamer) reportMissingLog(s *v1alpha1.AgenticSession, pods []corev1.Pod) {
	job := lastJobName(s)
	attempt := attemptSuffix.FindString(job)
	for l := range t.opened {
		if l.owner == attempt {
			return
		}
	}
	if job == "" {
		t.printer.printNotice("no logs yet: no attempt has started")
		return
	}
	for i := range pods {
		if sessionJobName(s, &pods[i]) == job {
			t.printer.printNotice("attempt %s has no log: container %s of Pod %s has not started%s", attempt, t.options.Container, pods[i].Name, waitingReason(&pods[i]))
			return
		}
	}
	t.printer.printNotice("attempt %s has no log: its Job %s has no Pod", attempt, job)
}
