//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// deletedSessionCount is how many sessions are deleted at once.
	deletedSessionCount = 20
	// childDeletionLimit is how long their children may be there.
	childDeletionLimit = 30 * time.Second
)

func sessionsDeleted(t *testing.T) {
	wantChildrenDeletedInTime(t, createRunningSessions(t))
}

func sessionsDeletedWithoutOperator(t *testing.T) {
	stories := createRunningSessions(t)
	scaleOperatorToZero(t)
	wantChildrenDeletedInTime(t, stories)
}

// createRunningSessions makes a crowd of sessions that run, each made of all there is.
func createRunningSessions(t *testing.T) []*sessionTest {
	t.Helper()
	var stories []*sessionTest
	for i := range deletedSessionCount {
		stories = append(stories, createSessionIn(t, deletionNamespace, fmt.Sprintf("guest-%d-", i), interactiveRunner, "", setAllFeatures))
	}
	for _, s := range stories {
		s.waitForPhase(v1alpha1.SessionRunning)
	}
	found := countChildObjects(t, deletionNamespace)
	for _, s := range stories {
		if kinds := len(found[s.s.UID]); kinds != len(childObjectLists()) {
			t.Errorf("%s is made of %v", s.s.Name, found[s.s.UID])
		}
	}
	return stories
}

// wantChildrenDeletedInTime deletes all the sessions at once, and sees when the last child of each is
// gone.
func wantChildrenDeletedInTime(t *testing.T, stories []*sessionTest) {
	t.Helper()
	start := time.Now()
	left := map[types.UID]string{}
	for _, s := range stories {
		s.deleteSession()
		left[s.s.UID] = s.s.Name
	}
	var times []time.Duration
	eventually(t, "all children to be gone", func() bool {
		found := countChildObjects(t, deletionNamespace)
		for uid := range left {
			if found[uid] == nil {
				times = append(times, since(start))
				delete(left, uid)
			}
		}
		return len(left) == 0
	})
	slices.Sort(times)
	p99 := times[len(times)-1] // of twenty, the 99th percentile is the last
	t.Logf("%d sessions: all children were gone after %v (median), %v (p99)", len(stories), times[len(times)/2], p99)
	if p99 > childDeletionLimit {
		t.Errorf("children were there for %v", p99)
	}
}

// scaleOperatorToZero has no operator run for the rest of the test.
func scaleOperatorToZero(t *testing.T) {
	t.Helper()
	before := operator(t)
	none := before.DeepCopy()
	none.Spec.Replicas = new(int32(0))
	must(t, cluster.Patch(t.Context(), none, client.MergeFrom(before)))
	t.Cleanup(func() {
		ctx := context.Background()
		if err := cluster.Patch(ctx, before, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *before.Spec.Replicas))); err != nil {
			t.Error(err)
		}
		if err := waitForOperator(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the operator to be gone", func() bool {
		pods, err := operatorPods(t.Context())
		must(t, err)
		return len(pods) == 0
	})
}
