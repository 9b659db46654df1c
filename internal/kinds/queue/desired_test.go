package queue

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// testCluster is the ID of the tests' cluster.
var testCluster = broker.ClusterID("test")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func durationOf(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

// newQueue returns a Queue named mail of generation 3.
func newQueue(changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{
		Name: "mail", Namespace: "ns", UID: "1", Generation: 3, CreationTimestamp: metav1.NewTime(noon),
	}}
	for _, change := range changes {
		change(q)
	}
	return q
}

func TestDesiredQueue(t *testing.T) {
	settings := func(s v1alpha1.QueueSettings) v1alpha1.QueueEffective {
		return v1alpha1.QueueEffective{QueueSettings: s}
	}
	lowAndHigh := []v1alpha1.QueuePriority{{Name: "low", Share: v1alpha1.Share{Weight: 1}}, {Name: "high", Share: v1alpha1.Share{Weight: 9}}}
	low, high := broker.Priority{Name: "low", Weight: 1}, broker.Priority{Name: "high", Weight: 9}
	for name, row := range map[string]struct {
		queue     func(*v1alpha1.Queue)
		effective v1alpha1.QueueEffective
		want      func(*broker.QueueConfig)
	}{
		"the defaults": {},
		"another name on the broker": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Name = "post" },
			want:  func(w *broker.QueueConfig) { w.Name, w.AdoptsUnowned = "post", false },
		},
		"the name that the status records": {
			queue: func(q *v1alpha1.Queue) { q.Status.Name = "mail" },
			want:  func(w *broker.QueueConfig) { w.Name, w.AdoptsUnowned = "mail", false },
		},
		"a broker of the namespace": {
			queue:     func(q *v1alpha1.Queue) { q.Spec.Name = "post" },
			effective: settings(v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{}}),
			want:      func(w *broker.QueueConfig) { w.Name = "post" },
		},
		"limits": {
			queue: func(q *v1alpha1.Queue) {
				q.Spec.MaxInFlight, q.Spec.MaxBacklog, q.Spec.Lease = new(int32(5)), new(int64(9)), durationOf(time.Minute)
				q.Spec.MessageTimeout, q.Spec.MaxAge = durationOf(2*time.Minute), durationOf(time.Hour)
			},
			want: func(w *broker.QueueConfig) {
				w.MaxInFlight, w.MaxBacklog, w.Lease, w.JobTimeout, w.MaxAge = 5, 9, time.Minute, 2*time.Minute, time.Hour
			},
		},
		"a rate limit without per and burst": {
			effective: settings(v1alpha1.QueueSettings{RateLimit: &v1alpha1.RateLimit{Limit: 10}}),
			want:      func(w *broker.QueueConfig) { w.RateLimit = &broker.RateLimit{Limit: 10, Per: time.Second, Burst: 10} },
		},
		"a whole rate limit": {
			effective: settings(v1alpha1.QueueSettings{RateLimit: &v1alpha1.RateLimit{Limit: 10, Per: durationOf(time.Minute), Burst: new(int32(30))}}),
			want:      func(w *broker.QueueConfig) { w.RateLimit = &broker.RateLimit{Limit: 10, Per: time.Minute, Burst: 30} },
		},
		"an initial delay beyond the default maximum": {
			effective: settings(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Backoff: durationOf(time.Hour)}}),
			want:      func(w *broker.QueueConfig) { w.Retry.InitialDelay, w.Retry.MaxDelay = time.Hour, time.Hour },
		},
		"both delays": {
			effective: settings(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Backoff: durationOf(2 * time.Second), MaxBackoff: durationOf(3 * time.Second)}}),
			want:      func(w *broker.QueueConfig) { w.Retry.InitialDelay, w.Retry.MaxDelay = 2*time.Second, 3*time.Second },
		},
		"retries count without the first attempt": {
			effective: settings(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Limit: new(int32(1000)), Factor: new(v1alpha1.Number("1.5"))}}),
			want:      func(w *broker.QueueConfig) { w.Retry.MaxAttempts, w.Retry.MultiplierPercent = 1001, 150 },
		},
		"no dead letters": {
			effective: settings(v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0))}}),
			want:      func(w *broker.QueueConfig) { w.DeadLetter.Enabled = false },
		},
		"priorities keep their order": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Priorities = lowAndHigh },
			want:  func(w *broker.QueueConfig) { w.Priorities = []broker.Priority{low, high} },
		},
		"strict priorities are sorted by weight": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Priorities, q.Spec.StrictPriority = lowAndHigh, true },
			want:  func(w *broker.QueueConfig) { w.Priorities = []broker.Priority{high, low} },
		},
		"storage": {
			queue: func(q *v1alpha1.Queue) {
				placement := &v1alpha1.QueuePlacement{Cluster: "eu", Tags: []string{"disk:fast"}}
				q.Spec.Storage = &v1alpha1.QueueStorage{Replicas: new(int32(5)), Type: v1alpha1.StorageMemory, Placement: placement}
			},
			want: func(w *broker.QueueConfig) {
				placement := &broker.Placement{Cluster: "eu", Tags: []string{"disk:fast"}}
				w.Storage = broker.StorageConfig{Replicas: 5, Type: broker.StorageMemory, Placement: placement}
			},
		},
		"drift that is only reported": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Drift = v1alpha1.DriftWarn },
			want:  func(w *broker.QueueConfig) { w.Drift = broker.DriftWarn },
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue()
			if row.queue != nil {
				row.queue(q)
			}
			want := broker.DefaultQueueConfig("ns_mail_" + testCluster)
			want.Owner = broker.QueueOwner{UID: "1", Name: "ns/mail", Cluster: testCluster}
			want.AdoptsUnowned = true // nobody else can choose the name
			if row.want != nil {
				row.want(&want)
			}
			got := DesiredQueue(q, &row.effective, testCluster)
			require.Equal(t, want, got)
			require.NoError(t, got.Validate())
		})
	}
}

func TestValidateReturnsTheInvalidFields(t *testing.T) {
	q := newQueue(func(q *v1alpha1.Queue) {
		q.UID = ""
		q.Spec.MaxInFlight = new(int32(1))
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "low", Share: v1alpha1.Share{Weight: 1}}, {Name: "high", Share: v1alpha1.Share{Weight: 9}}}
		q.Spec.RateLimit = &v1alpha1.RateLimit{Limit: 1_000_001}
	})
	var got []string
	for _, err := range Validate(q) {
		got = append(got, err.Field)
	}
	require.Equal(t, []string{"spec.maxInFlight", "spec.rateLimit"}, got)
	errs := Validate(newQueue())
	require.True(t, len(errs) == 0, "the defaults are refused: %v", errs)
}
