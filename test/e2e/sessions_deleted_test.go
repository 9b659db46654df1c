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
)

const (
	// deletedSessionCount is the number of sessions that are deleted at once.
	deletedSessionCount = 50
	// childDeletionLimit is the maximum time until their objects are deleted, on an otherwise idle node with two cores.
	childDeletionLimit = 30 * time.Second
)

func testSessionsDeleted(t *testing.T) {
	wantChildrenDeletedInTime(t, createRunningSessions(t))
}

func testSessionsDeletedWithoutOperator(t *testing.T) {
	sessions := createRunningSessions(t)
	scaleOperatorToZero(t)
	wantChildrenDeletedInTime(t, sessions)
}

// createRunningSessions creates sessions with all kinds of objects, and waits until they run.
func createRunningSessions(t *testing.T) []*sessionTest {
	t.Helper()
	var sessions []*sessionTest
	for i := range deletedSessionCount {
		sessions = append(sessions, createSessionIn(t, deletionNamespace, fmt.Sprintf("session-%d-", i), deafRunner, "", setAllFeatures))
	}
	for _, s := range sessions {
		s.waitForPhase(v1alpha1.SessionRunning)
	}
	found := countChildObjects(t, deletionNamespace)
	for _, s := range sessions {
		if kinds := len(found[s.s.UID]); kinds != len(childObjectLists()) {
			t.Errorf("%s has the objects %v", s.s.Name, found[s.s.UID])
		}
	}
	return sessions
}

// wantChildrenDeletedInTime deletes all sessions at once, and measures when the last object of each
// is deleted.
func wantChildrenDeletedInTime(t *testing.T, sessions []*sessionTest) {
	t.Helper()
	start := time.Now()
	left := map[types.UID]string{}
	for _, s := range sessions {
		s.deleteSession()
		left[s.s.UID] = s.s.Name
	}
	var times []time.Duration
	poll.Until(t, "all objects to be deleted", func() bool {
		found := countChildObjects(t, deletionNamespace)
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
	if last > childDeletionLimit {
		t.Errorf("objects existed for %v", last)
	}
}
