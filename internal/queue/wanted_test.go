package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func lasting(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

// mail is a Queue, changed.
func mail(changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{
		Name: "mail", Namespace: "ns", UID: "1", Generation: 3, CreationTimestamp: metav1.NewTime(noon),
	}}
	for _, change := range changes {
		change(q)
	}
	return q
}

func TestWanted(t *testing.T) {
	for name, row := range map[string]struct {
		queue     func(*v1alpha1.Queue)
		effective v1alpha1.QueueEffective
		want      func(*broker.QueueConfig)
	}{
		"the defaults": {},
		"a name of its own": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Name = "post" },
			want:  func(w *broker.QueueConfig) { w.Name = "post" },
		},
		"who it takes over from": {
			queue: func(q *v1alpha1.Queue) { q.Annotations = map[string]string{AnnotationSupersedes: "0"} },
			want:  func(w *broker.QueueConfig) { w.ReplacesOwnerUID = "0" },
		},
		"bounds": {
			queue: func(q *v1alpha1.Queue) {
				q.Spec.MaxInFlight, q.Spec.MaxBacklog, q.Spec.Lease = new(int32(5)), new(int64(9)), lasting(time.Minute)
				q.Spec.Retention = &v1alpha1.Retention{MaxAge: *lasting(time.Hour)}
			},
			want: func(w *broker.QueueConfig) {
				w.MaxInFlight, w.MaxBacklog, w.Lease, w.MaxAge = 5, 9, time.Minute, time.Hour
			},
		},
		"a rate limit that says only the limit": {
			effective: v1alpha1.QueueEffective{RateLimit: &v1alpha1.RateLimit{Limit: 10}},
			want:      func(w *broker.QueueConfig) { w.RateLimit = &broker.RateLimit{Limit: 10, Per: time.Second, Burst: 10} },
		},
		"a first delay longer than the last would be": {
			effective: v1alpha1.QueueEffective{Retry: &v1alpha1.Retry{InitialDelay: lasting(time.Hour)}},
			want:      func(w *broker.QueueConfig) { w.Retry.InitialDelay, w.Retry.MaxDelay = time.Hour, time.Hour },
		},
		"dead letters that are dropped": {
			effective: v1alpha1.QueueEffective{DeadLetter: &v1alpha1.DeadLetter{Enabled: new(false)}},
			want:      func(w *broker.QueueConfig) { w.DeadLetter.Enabled = false },
		},
		"priorities in their order": {
			queue: func(q *v1alpha1.Queue) {
				q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "low", Weight: 1}, {Name: "high", Weight: 9}}
			},
			want: func(w *broker.QueueConfig) {
				w.Priorities = []broker.Priority{{Name: "low", Weight: 1}, {Name: "high", Weight: 9}}
			},
		},
		"strict priorities by weight": {
			queue: func(q *v1alpha1.Queue) {
				q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "low", Weight: 1}, {Name: "high", Weight: 9}}
				q.Spec.StrictPriority = true
			},
			want: func(w *broker.QueueConfig) {
				w.Priorities = []broker.Priority{{Name: "high", Weight: 9}, {Name: "low", Weight: 1}}
			},
		},
		"drift that is warned of": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Drift = v1alpha1.DriftWarn },
			want:  func(w *broker.QueueConfig) { w.Drift = broker.DriftWarn },
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := mail()
			if row.queue != nil {
				row.queue(q)
			}
			want := broker.DefaultQueueConfig("mail")
			want.Owner = broker.QueueOwner{UID: "1", Name: "ns/mail", CreationTime: noon}
			if row.want != nil {
				row.want(&want)
			}
			got := DesiredQueue(q, &row.effective)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("queue (-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	q := mail(func(q *v1alpha1.Queue) {
		q.UID = ""
		q.Spec.MaxInFlight = new(int32(1))
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "low", Weight: 1}, {Name: "high", Weight: 9}}
		q.Spec.RateLimit = &v1alpha1.RateLimit{Limit: 1_000_001}
	})
	var got []string
	for _, err := range Validate(q) {
		got = append(got, err.Field)
	}
	if diff := cmp.Diff([]string{"spec.maxInFlight", "spec.rateLimit"}, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if errs := Validate(mail()); len(errs) > 0 {
		t.Errorf("the defaults are refused: %v", errs)
	}
}
