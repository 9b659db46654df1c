package validation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestQueueFieldsThatTheEngineDoesNotEnforceCauseWarnings(t *testing.T) {
	q := queueOf(v1alpha1.QueueSpec{
		QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}, RateLimit: &v1alpha1.RateLimit{Limit: 5}}, MaxBacklog: new(int64(9)),
		Lease:  &v1alpha1.Duration{Duration: metav1.Duration{Duration: 30 * time.Second}},
		MaxAge: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Hour}},
	})
	warnings, err := QueueValidator.ValidateCreate(t.Context(), q)
	want := []string{
		"spec.broker.engine: Asynq is experimental: it depends on how asynq stores its tasks, which asynq may change",
		"spec.maxAge: not enforced: asynq does not delete old tasks",
		"spec.maxBacklog: not enforced: asynq cannot reject messages from producers",
		"spec.rateLimit: not enforced: asynq has no rate limit across workers",
	}
	if diff := cmp.Diff(want, []string(warnings)); diff != "" || err != nil {
		t.Errorf("%v; warnings (-want, +got):\n%s", err, diff)
	}
}

func TestInvalidQueueIsRefusedOnUpdate(t *testing.T) {
	for name, row := range map[string]struct {
		before v1alpha1.QueueSpec
		edit   func(*v1alpha1.Queue)
		want   []string
		warns  []string
	}{
		"an invalid change is refused": {
			edit:  func(q *v1alpha1.Queue) { q.Spec = invalidQueueSpec() },
			want:  []string{"spec.maxInFlight"},
			warns: []string{"spec.maxInFlight: each priority gets a share by weight, and other priorities cannot use a share that is idle"},
		},
		"a removed priority": {
			before: v1alpha1.QueueSpec{Priorities: invalidQueueSpec().Priorities},
			edit:   func(q *v1alpha1.Queue) { q.Spec.Priorities = q.Spec.Priorities[:1] },
			warns:  []string{"spec.priorities: low stays on the broker until it is empty"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := queueOf(row.before)
			after := before.DeepCopy()
			row.edit(after)
			warnings, err := QueueValidator.ValidateUpdate(t.Context(), before, after)
			wantFields(t, err, row.want)
			require.Equal(t, row.warns, []string(warnings))
		})
	}
}
