package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// isSessionStatusWrite tells whether a request writes a session's status, and of which.
func isSessionStatusWrite(request *http.Request) (name string, is bool) {
	head, found := strings.CutSuffix(request.URL.Path, "/status")
	return path.Base(head), found && isWrite(request) && strings.Contains(head, "/agenticsessions/")
}

// Of ten writes of a status four fail, each in another way. What was to be told is told all
// the same: a status that never comes to be stored is the one that counts.
func TestSessionStatusIsStoredDespiteFailedWrites(t *testing.T) {
	ns := namespace(t)
	var writes, failed atomic.Int64
	faults.set(t, ns, func(request *http.Request) fault {
		if _, is := isSessionStatusWrite(request); !is {
			return delivered
		}
		writes.Add(1)
		becomes := oneOf(randomSource{rand.New(rand.NewPCG(rand.Uint64(), 0))},
			conflicted, broken, undelivered, answerIsLost, delivered, delivered, delivered, delivered, delivered, delivered)
		if becomes != delivered {
			failed.Add(1)
		}
		return becomes
	})
	all := testbuilder.Number(t, "SESSION_STATUSES", 30)
	var stories []*sessionTest
	for i := range all {
		stories = append(stories, createSessionIn(t, ns, fmt.Sprintf("s%04d", i), func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			r.Spec.RuntimeClassName = nil // simulated nodes run them to their end
		}))
	}
	lost := 0
	for _, s := range stories {
		done := s.waitForPhase(v1alpha1.SessionCompleted)
		if !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ConditionCompleted) || len(done.Status.Runs) != 1 || done.Status.Job != "" {
			lost++
			t.Errorf("%s: %+v", s.key.Name, done.Status)
		}
	}
	t.Logf("of %d writes %d failed; of %d sessions %d do not tell how they ended", writes.Load(), failed.Load(), all, lost)
}

// A session is deleted after it was read and before its status is written, each time.
func TestSessionDeletedDuringStatusWriteIsNoError(t *testing.T) {
	ns := namespace(t)
	var deleted atomic.Int64
	before := sessionReconcileErrors(t)
	faults.set(t, ns, func(request *http.Request) fault {
		if name, is := isSessionStatusWrite(request); is {
			s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			if cluster.Delete(context.Background(), s) == nil {
				deleted.Add(1)
			}
		}
		return delivered
	})
	all := int64(testbuilder.Number(t, "SESSION_STATUSES", 30))
	for i := range all {
		createSessionIn(t, ns, fmt.Sprintf("s%04d", i))
	}
	eventually(t, "all to be deleted", func() bool { return deleted.Load() == all })
	eventually(t, "nothing to be left to do", func() bool {
		return sumMetric(t, "workqueue_depth", "name", "agenticsession")+sumMetric(t, "controller_runtime_active_workers", "controller", "agenticsession") == 0
	})
	if after := sessionReconcileErrors(t); after != before {
		t.Errorf("%g passes ended with an error", after-before)
	}
	t.Logf("%d sessions were deleted while their status was written", all)
}

func sessionReconcileErrors(t *testing.T) float64 {
	t.Helper()
	return sumMetric(t, "controller_runtime_reconcile_errors_total", "controller", "agenticsession")
}

// sumMetric is what the operator counts, or 0 of what it has not counted yet.
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
			for _, pair := range one.GetLabel() {
				if pair.GetName() == label && pair.GetValue() == value {
					sum += one.GetCounter().GetValue() + one.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
