//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// deletedSessionCount is the number of sessions that are deleted at once.
	deletedSessionCount = 50
	// childDeletionLimit is the maximum time until their objects are deleted, on an otherwise idle node with two cores.
	childDeletionLimit = 30 * time.Second
)

func testSessionsDeleted(t *testing.T) { wantChildrenDeletedInTime(t, createDeafSessions(t)) }

func testSessionsDeletedWithoutOperator(t *testing.T) {
	sessions := createDeafSessions(t)
	scaleOperatorToZero(t)
	wantChildrenDeletedInTime(t, sessions)
}

// createDeafSessions creates sessions that ignore SIGTERM, with all kinds of objects, and waits until they run.
func createDeafSessions(t *testing.T) (sessions []*sessionTest) {
	t.Helper()
	for i := range deletedSessionCount {
		sessions = append(sessions, createSessionIn(t, sessionsNamespace, fmt.Sprintf("deaf-%d-", i), deafRunner, "", setAllFeatures))
	}
	for _, s := range sessions {
		s.waitForPhase(v1alpha1.SessionRunning)
	}
	found := countChildObjects(t, sessionsNamespace)
	for _, s := range sessions {
		require.Equal(t, len(childObjectLists()), len(found[s.s.UID]))
	}
	return sessions
}

// wantChildrenDeletedInTime deletes all sessions at once, and measures when the last object of each is deleted.
func wantChildrenDeletedInTime(t *testing.T, sessions []*sessionTest) {
	t.Helper()
	start, left, times := time.Now(), map[types.UID]bool{}, []time.Duration{}
	for _, s := range sessions {
		s.deleteSession()
		left[s.s.UID] = true
	}
	poll.Until(t, "all objects to be deleted", func() bool {
		found := countChildObjects(t, sessionsNamespace)
		for uid := range left {
			if found[uid] == nil {
				times = append(times, roundedSince(start))
				delete(left, uid)
			}
		}
		return len(left) == 0
	})
	slices.Sort(times)
	last := times[len(times)-1]
	t.Logf("%d sessions: all objects were deleted after %v (median), %v (last, target %v)", len(sessions), times[len(times)/2], last, childDeletionLimit)
	require.True(t, last <= childDeletionLimit, "objects existed for %v", last)
}
