package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func queueOf(spec v1alpha1.QueueSpec) *v1alpha1.Queue {
	return &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail"}, Spec: spec}
}

// invalidQueueSpec returns a spec whose maxInFlight is lower than the number of priorities.
func invalidQueueSpec() v1alpha1.QueueSpec {
	return v1alpha1.QueueSpec{
		MaxInFlight: new(int32(1)), Priorities: []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 2}}, {Name: "low", Share: v1alpha1.Share{Weight: 1}}},
	}
}

func TestQueueWarningsAreThoseOfItsSpecItsEngineAndItsChange(t *testing.T) {
	before := queueOf(v1alpha1.QueueSpec{
		QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}, RateLimit: &v1alpha1.RateLimit{Limit: 5}},
		Priorities:    invalidQueueSpec().Priorities,
	})
	after := before.DeepCopy()
	after.Spec.Priorities = after.Spec.Priorities[:1]
	warnings, err := QueueValidator.ValidateUpdate(t.Context(), before, after)
	require.NoError(t, err)
	for _, want := range []string{"spec.broker.engine: Asynq is", "spec.rateLimit: not enforced", "spec.priorities: low stays on the broker"} {
		require.Contains(t, strings.Join(warnings, "\n"), want)
	}
}
