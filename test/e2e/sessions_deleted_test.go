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
	// crowd is how many sessions are deleted at once.
	crowd = 20
	// goneWithin is how long their children may be there.
	goneWithin = 30 * time.Second
)

func sessionsDeleted(t *testing.T) {
	wantGoneInTime(t, gather(t))
}

func sessionsDeletedWithoutOperator(t *testing.T) {
	stories := gather(t)
	withoutOperator(t)
	wantGoneInTime(t, stories)
}

// gather makes a crowd of sessions that run, each made of all there is.
func gather(t *testing.T) []*sessionStory {
	t.Helper()
	var stories []*sessionStory
	for i := range crowd {
		stories = append(stories, converseIn(t, dispersed, fmt.Sprintf("guest-%d-", i), attended, "", everything))
	}
	for _, s := range stories {
		s.untilPhase(v1alpha1.SessionRunning)
	}
	found := childrenIn(t, dispersed)
	for _, s := range stories {
		if kinds := len(found[s.s.UID]); kinds != len(children()) {
			t.Errorf("%s is made of %v", s.s.Name, found[s.s.UID])
		}
	}
	return stories
}

// wantGoneInTime deletes all the sessions at once, and sees when the last child of each is
// gone.
func wantGoneInTime(t *testing.T, stories []*sessionStory) {
	t.Helper()
	start := time.Now()
	left := map[types.UID]string{}
	for _, s := range stories {
		s.delete()
		left[s.s.UID] = s.s.Name
	}
	var times []time.Duration
	eventually(t, "all children to be gone", func() bool {
		found := childrenIn(t, dispersed)
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
	if p99 > goneWithin {
		t.Errorf("children were there for %v", p99)
	}
}

// withoutOperator has no operator run for the rest of the test.
func withoutOperator(t *testing.T) {
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
