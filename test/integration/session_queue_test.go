package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
)

// sessionQueue are sessions of a limited SessionRunner, in the order of their creation.
type sessionQueue struct {
	t        *testing.T
	ns       string
	sessions []*sessionTest
}

// createQueue creates sessions, so quickly that many have the same creation time. Their names have the order of their
// creation.
func createQueue(t *testing.T, number int, limit func(r *v1alpha1.SessionRunner)) *sessionQueue {
	t.Helper()
	q := &sessionQueue{t: t, ns: namespace(t)}
	for i := range number {
		q.sessions = append(q.sessions, createSessionIn(t, q.ns, fmt.Sprintf("s%02d", i), func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) { limit(r) }))
	}
	return q
}

// activeSessions returns the names of the sessions with a Job that has not ended.
func (q *sessionQueue) activeSessions() []string {
	q.t.Helper()
	var jobs batchv1.JobList
	if err := cluster.List(q.t.Context(), &jobs, client.InNamespace(q.ns)); err != nil {
		q.t.Fatal(err)
	}
	var names []string
	for i := range jobs.Items {
		if jobs.Items[i].Status.CompletionTime == nil && len(jobs.Items[i].Status.Conditions) == 0 {
			name, _, _ := strings.Cut(jobs.Items[i].Name, "-")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (q *sessionQueue) wantActive(most int, want ...string) {
	q.t.Helper()
	poll.Until(q.t, fmt.Sprintf("the sessions %v to run", want), func() bool {
		active := q.activeSessions()
		if len(active) > most {
			q.t.Fatalf("%v run, the limit is %d", active, most)
		}
		return slices.Equal(active, want)
	})
}

func (q *sessionQueue) waitUntilQueued(index int) {
	q.t.Helper()
	s := q.sessions[index]
	poll.Until(q.t, s.key.Name+" to be queued", func() bool {
		ready := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == v1alpha1.ReasonQueued && strings.Contains(ready.Message, "position")
	})
}

func (q *sessionQueue) updateRunner(change func(r *v1alpha1.SessionRunner)) {
	q.t.Helper()
	poll.Until(q.t, "the SessionRunner to be updated", func() bool {
		r := &v1alpha1.SessionRunner{}
		if err := cluster.Get(q.t.Context(), client.ObjectKey{Namespace: q.ns, Name: "default"}, r); err != nil {
			q.t.Fatal(err)
		}
		change(r)
		return cluster.Update(q.t.Context(), r) == nil
	})
}

func TestExcessSessionsWaitInOrder(t *testing.T) {
	t.Parallel()
	q := createQueue(t, 8, func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = new(int32(2)) })
	q.wantActive(2, "s00", "s01")
	for i := 2; i < 8; i++ {
		q.waitUntilQueued(i)
	}
	q.sessions[2].patchSpec(`{"suspend": true}`)
	q.sessions[2].waitForPhase(v1alpha1.SessionStopped)
	if err := cluster.Delete(t.Context(), q.sessions[3].getSession()); err != nil {
		t.Fatal(err)
	}
	q.sessions[1].exitRunner(0, "")
	q.wantActive(2, "s00", "s04")
	if err := cluster.Delete(t.Context(), q.sessions[0].getSession()); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "s05 to start", func() bool { return q.sessions[5].getSession().Status.Attempt.JobName != "" })

	q.updateRunner(func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = new(int32(1)) })
	q.sessions[4].exitRunner(0, "")
	q.sessions[4].waitForPhase(v1alpha1.SessionCompleted)
	q.wantActive(2, "s05") // the lowered limit stopped no session, and starts none
	q.waitUntilQueued(6)
	q.updateRunner(func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = nil })
	q.wantActive(3, "s05", "s06", "s07")
}

func TestSessionsOfAUserWaitForEachOther(t *testing.T) {
	t.Parallel()
	q := createQueue(t, 3, func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessionsPerUser = new(int32(1)) })
	for i, name := range []string{"s00", "s01", "s02"} {
		q.wantActive(1, name)
		q.sessions[i].exitRunner(0, "")
	}
}

// Sessions that all end in a random order never exceed the limit, and all run.
func TestManySessionsNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	const number, most = 24, 3
	q := createQueue(t, number, func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = new(int32(most)) })
	ended := map[string]bool{}
	for len(ended) < number {
		var active []string
		poll.Until(t, "a session to run", func() bool {
			active = slices.DeleteFunc(q.activeSessions(), func(name string) bool { return ended[name] })
			if len(active) > most {
				t.Fatalf("%v run", active)
			}
			return len(active) > 0
		})
		name := active[rand.IntN(len(active))]
		s := &sessionTest{t, client.ObjectKey{Namespace: q.ns, Name: name}}
		s.exitRunner(0, "")
		ended[name] = true
	}
	for _, s := range q.sessions {
		s.waitForPhase(v1alpha1.SessionCompleted)
	}
}

// setSuspended suspends or resumes the session's Job, as a queue does.
func (s *sessionTest) setSuspended(suspended bool) {
	s.t.Helper()
	job := &s.listJobs()[0]
	before := job.DeepCopy()
	job.Spec.Suspend = &suspended
	if err := cluster.Patch(s.t.Context(), job, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// TestKueue tests the same with Kueue's controller.
func TestSessionWithASuspendedJobIsPendingAndContinuesItsAttempt(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		r.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "team-a"}}
	})
	s.startRunner()
	first := s.waitForPhase(v1alpha1.SessionRunning).Status

	s.setSuspended(true)
	queued := s.waitForPhase(v1alpha1.SessionPending).Status
	if ready := meta.FindStatusCondition(queued.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonQueued || !strings.HasSuffix(ready.Message, " waits in queue team-a") {
		t.Errorf("Ready is %+v", ready)
	}
	if queued.ActiveDuration.Duration.Duration == 0 || queued.Attempt.ActiveSince != nil || queued.Attempt.RunnerStartTime != nil {
		t.Errorf("%v count, and the time since %s", queued.ActiveDuration, queued.Attempt.ActiveSince)
	}
	poll.Until(t, "the Pod to be deleted", func() bool { return len(s.listPods()) == 0 })

	s.setSuspended(false)
	s.waitForPhase(v1alpha1.SessionCreating)
	s.startRunner()
	again := s.waitForPhase(v1alpha1.SessionRunning).Status
	if again.Attempt.Attempt != 1 || again.Attempt.JobUID != first.Attempt.JobUID || again.ActiveDuration != queued.ActiveDuration || len(again.Attempts) != 0 {
		t.Errorf("%+v", again)
	}
	s.exitRunner(0, "")
	s.waitForPhase(v1alpha1.SessionCompleted)
}

// listPods lists the session's Pods.
func (s *sessionTest) listPods() []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	if err := cluster.List(s.t.Context(), &pods, client.InNamespace(s.key.Namespace), client.MatchingLabels{agenticsession.LabelSession: s.key.Name}); err != nil {
		s.t.Fatal(err)
	}
	return pods.Items
}
