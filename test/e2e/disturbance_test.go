//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func testRollingRestart(t *testing.T) {
	s := createSequence(t, newShortSequence("restarted", 8))
	calls := callWebhook(t)
	before := currentLease(t)

	restarted := operatorDeployment(t)
	original := restarted.DeepCopy()
	restarted.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
	require.NoError(t, cluster.Patch(t.Context(), restarted, client.MergeFrom(original)))
	require.NoError(t, waitForOperator(t.Context()))
	after := currentLease(t)
	require.True(t, leaseHolder(after) != leaseHolder(before), "the leader did not change")
	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	calls.recordLease(after)
	// A leader stops up to 2 s after its last renewal, and another replica tries to acquire the
	// Lease up to 2.2 times 2 s later. A Lease that is not released expires after 15 s. The next
	// leader may be a replica that is restarted later.
	leaderless := calls.longestLeaderless()
	if limit := 10 * time.Second; leaderless > limit {
		t.Errorf("no replica led for %v, want at most %v", leaderless, limit)
	}
	t.Logf("%d replicas led, the next at most %v after the last renewal by the previous one", len(calls.terms), leaderless.Round(100*time.Millisecond))

	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// webhookCaller calls the webhook repeatedly, and records the renewals of the Lease.
type webhookCaller struct {
	stop  context.CancelFunc
	done  chan struct{}
	errs  []error
	terms []leaseTerm
}

// leaseTerm is the time in which one replica held the Lease.
type leaseTerm struct {
	holder                string
	acquired, lastRenewal time.Time
}

func callWebhook(t *testing.T) *webhookCaller {
	ctx, stop := context.WithCancel(t.Context())
	c := &webhookCaller{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.callOnce(ctx)
		}
	}()
	t.Cleanup(func() { c.stopCalling() })
	return c
}

func (c *webhookCaller) callOnce(ctx context.Context) {
	if err := webhookServes(ctx); err != nil && ctx.Err() == nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
	}
	if lease, err := readLease(ctx); err == nil {
		c.recordLease(lease)
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (c *webhookCaller) recordLease(lease *coordinationv1.Lease) {
	holder := leaseHolder(lease)
	if holder == "" {
		return
	}
	if n := len(c.terms); n == 0 || c.terms[n-1].holder != holder {
		c.terms = append(c.terms, leaseTerm{holder: holder, acquired: lease.Spec.AcquireTime.Time})
	}
	c.terms[len(c.terms)-1].lastRenewal = lease.Spec.RenewTime.Time
}

// longestLeaderless returns the longest time between two recorded leaders. The calls must have been
// stopped.
func (c *webhookCaller) longestLeaderless() (longest time.Duration) {
	for i := 1; i < len(c.terms); i++ {
		longest = max(longest, c.terms[i].acquired.Sub(c.terms[i-1].lastRenewal))
	}
	return longest
}

// stopCalling ends the calls and returns those that failed.
func (c *webhookCaller) stopCalling() []error {
	c.stop()
	<-c.done
	return c.errs
}

func testFailover(t *testing.T) {
	var sequences []*sequenceTest
	for range 4 {
		sequences = append(sequences, createSequence(t, newShortSequence("fail-over", 10)))
	}
	sequences[0].waitForRunningPod("t-9")

	hung := leaderPod(t)
	restarts := hung.Status.ContainerStatuses[0].RestartCount
	before := leaseHolder(currentLease(t))
	start := time.Now()
	sendSignal(t, hung, operatorName, "STOP")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader hung", roundedSince(start))
	require.True(t, leaderPod(t).UID != hung.UID, "the hung Pod leads again")
	// The resumed process assumes that it still leads, and exits when it detects that it does not.
	sendSignal(t, hung, operatorName, "CONT")
	poll.Until(t, "the old leader to restart", func() bool {
		return objectExists(t, hung) && hung.Status.ContainerStatuses[0].RestartCount > restarts
	})

	// The kubelet restarts a killed process at once, so it can become the leader again.
	before = leaseHolder(currentLease(t))
	start = time.Now()
	sendSignal(t, leaderPod(t), operatorName, "KILL")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader was killed", roundedSince(start))
	require.True(t, !allFinished(sequences), "the sequences ended before the failover: this test needs longer ones")
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func allFinished(sequences []*sequenceTest) bool {
	for _, s := range sequences {
		if s.readSequence().Status.CompletionTime == nil {
			return false
		}
	}
	return true
}

// scaleOperatorToZero stops the operator for the rest of the test.
func scaleOperatorToZero(t *testing.T) {
	t.Helper()
	before := operatorDeployment(t)
	none := before.DeepCopy()
	none.Spec.Replicas = new(int32(0))
	require.NoError(t, cluster.Patch(t.Context(), none, client.MergeFrom(before)))
	t.Cleanup(func() {
		ctx := context.Background()
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *before.Spec.Replicas)
		require.NoError(t, cluster.Patch(ctx, before, client.RawPatch(types.MergePatchType, replicas)))
		require.NoError(t, waitForOperator(ctx))
	})
	poll.Until(t, "the operator's Pods to be deleted", func() bool {
		pods, err := operatorPods(t.Context())
		require.NoError(t, err)
		return len(pods) == 0
	})
}
