package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// A user can change the broker of a Queue to the operator's, where its name may be that of a queue of
// another namespace. The pool waits until the Queue is proven to own the queue there.
func TestAPoolWaitsUntilItsQueueIsProvenToOwnTheQueueOnItsBroker(t *testing.T) {
	own := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}}
	q.Status.Name, q.Status.Effective = "shared", &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{Broker: own}}
	q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	observe := func(on *v1alpha1.Broker) *Observed {
		o := &Observed{queues: &observedQueues{all: []observedQueue{{object: q, broker: on}}}}
		o.checkOwnership()
		return o
	}
	o := observe(own)
	require.True(t, o.queues != nil && o.Problem == nil, "the Queue owns its queue, and the pool has the problem %v", o.Problem)
	want := decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: `spec.queues[0]: Queue "mail" does not own a queue on its broker yet; see its conditions`}
	if o := observe(nil); o.queues != nil || o.StatsError != want.Message || o.Problem == nil || *o.Problem != want {
		t.Errorf("queues %v, problem %v", o.queues, o.Problem)
	}
}
