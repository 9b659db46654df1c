package integration

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// The order is decided in internal/kinds/agenticsession. Here the end and the deletion of a session, and another limit, start the next.
func TestExcessSessionsWaitInOrder(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	var sessions []*sessionTest
	for i := range 4 {
		sessions = append(sessions, createSessionIn(t, ns, fmt.Sprint("s", i), func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			r.Spec.Limits.MaxSessions = new(int32(1))
		}))
	}
	// wantOnlyFirst waits until the first sessions have started, and the next is queued.
	wantOnlyFirst := func(started int) {
		t.Helper()
		for _, s := range sessions[:started] {
			poll.Until(t, s.key.Name+" to start", func() bool { return len(s.listJobs()) > 0 })
		}
		poll.Until(t, "the next session to be queued", func() bool {
			ready := meta.FindStatusCondition(sessions[started].getSession().Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonQueued
		})
		for _, s := range sessions[started:] {
			require.Equal(t, 0, len(s.listJobs()))
		}
	}
	wantOnlyFirst(1)
	sessions[0].exitRunner(0, "")
	wantOnlyFirst(2)
	mustDelete(t, sessions[1].getSession())
	sessions = append(sessions[:1], sessions[2:]...)
	wantOnlyFirst(2)
	sessions[1].patchRunner(`{"limits":{"maxSessions":null}}`)
	sessions[2].waitForPod()
}
