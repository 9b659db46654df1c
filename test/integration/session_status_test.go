package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// isSessionStatusWrite returns the name of the session whose status a request writes.
func isSessionStatusWrite(request *http.Request) (name string, ok bool) {
	head, found := strings.CutSuffix(request.URL.Path, "/status")
	return path.Base(head), found && isWrite(request) && strings.Contains(head, "/agenticsessions/")
}

// Four of ten status writes fail, in different ways. The final status must be stored nevertheless.
func TestSessionStatusIsStoredDespiteFailedWrites(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	var writes, failed atomic.Int64
	faults.set(t, ns, func(request *http.Request) fault {
		if _, ok := isSessionStatusWrite(request); !ok {
			return delivered
		}
		writes.Add(1)
		outcome := oneOf(randomSource{rand.New(rand.NewPCG(rand.Uint64(), 0))},
			conflicted, broken, undelivered, answerIsLost, delivered, delivered, delivered, delivered, delivered, delivered)
		if outcome != delivered {
			failed.Add(1)
		}
		return outcome
	})
	all := testbuilder.NumberFromEnv(t, "SESSION_STATUSES", 30)
	var sessions []*sessionTest
	for i := range all {
		sessions = append(sessions, createSessionIn(t, ns, fmt.Sprintf("s%04d", i), func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			testbuilder.RunnerPod(&r.Spec).RuntimeClassName = nil // simulated nodes run the Pods
		}))
	}
	lost := 0
	for _, s := range sessions {
		done := s.waitForPhase(v1alpha1.SessionCompleted)
		if !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ConditionSucceeded) || len(done.Status.Attempts) != 1 || done.Status.Attempt.JobName != "" {
			lost++
			t.Errorf("%s: %+v", s.key.Name, done.Status)
		}
	}
	t.Logf("of %d writes %d failed; of %d sessions %d have no final status", writes.Load(), failed.Load(), all, lost)
}

// Each session is deleted after it was read and before its status is written.
func TestSessionDeletedDuringStatusWriteIsNoError(t *testing.T) {
	ns := namespace(t)
	var deleted atomic.Int64
	before := sessionReconcileErrors(t)
	faults.set(t, ns, func(request *http.Request) fault {
		if name, ok := isSessionStatusWrite(request); ok {
			s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			if cluster.Delete(context.Background(), s) == nil {
				deleted.Add(1)
			}
		}
		return delivered
	})
	all := int64(testbuilder.NumberFromEnv(t, "SESSION_STATUSES", 30))
	for i := range all {
		createSessionIn(t, ns, fmt.Sprintf("s%04d", i))
	}
	poll.Until(t, "all sessions to be deleted", func() bool { return deleted.Load() == all })
	poll.Until(t, "the work queue to be empty", func() bool {
		return sumMetric(t, "workqueue_depth", "name", "agenticsession")+sumMetric(t, "controller_runtime_active_workers", "controller", "agenticsession") == 0
	})
	if after := sessionReconcileErrors(t); after != before {
		t.Errorf("%g reconciliations ended with an error", after-before)
	}
	t.Logf("%d sessions were deleted while their status was written", all)
}

func sessionReconcileErrors(t *testing.T) float64 {
	t.Helper()
	return sumMetric(t, "controller_runtime_reconcile_errors_total", "controller", "agenticsession")
}

// sumMetric returns the sum of a metric's values with this label, or of all if label is empty; 0 if it has none.
func sumMetric(t *testing.T, metric, label, value string) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, one := range family.GetMetric() {
			matches := func(pair *dto.LabelPair) bool { return pair.GetName() == label && pair.GetValue() == value }
			if label == "" || slices.ContainsFunc(one.GetLabel(), matches) {
				sum += one.GetCounter().GetValue() + one.GetGauge().GetValue()
			}
		}
	}
	return sum
}
