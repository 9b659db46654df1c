package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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
		mustGet(q.t, client.ObjectKey{Namespace: q.ns, Name: "default"}, r)
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
	mustDelete(t, q.sessions[3].getSession())
	q.sessions[1].exitRunner(0, "")
	q.wantActive(2, "s00", "s04")
	mustDelete(t, q.sessions[0].getSession())
	poll.Until(t, "s05 to start", func() bool { return q.sessions[5].getSession().Status.Attempt.JobName != "" })

	q.updateRunner(func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = new(int32(1)) })
	q.sessions[4].exitRunner(0, "")
	q.sessions[4].waitForPhase(v1alpha1.SessionCompleted)
	q.wantActive(2, "s05") // the lowered limit stopped no session, and starts none
	q.waitUntilQueued(6)
	q.updateRunner(func(r *v1alpha1.SessionRunner) { r.Spec.Limits.MaxSessions = nil })
	q.wantActive(3, "s05", "s06", "s07")
}
