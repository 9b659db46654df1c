package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestWarnings(t *testing.T) {
	nats := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	two := []v1alpha1.QueuePriority{{Name: "high", Weight: 2}, {Name: "low", Weight: 1}}
	for name, row := range map[string]struct {
		spec v1alpha1.QueueSpec
		want []string
	}{
		"the defaults":          {v1alpha1.QueueSpec{}, nil},
		"a bounded NATS queue":  {v1alpha1.QueueSpec{Broker: nats, MaxBacklog: new(int64(9))}, []string{"spec.maxBacklog: NATS cannot deliver"}},
		"parts of maxInFlight":  {v1alpha1.QueueSpec{Priorities: two, MaxInFlight: new(int32(4))}, []string{"spec.maxInFlight: each priority"}},
		"strict priorities":     {v1alpha1.QueueSpec{Priorities: two, StrictPriority: true}, []string{"spec.strictPriority: "}},
		"dead letters dropped":  {v1alpha1.QueueSpec{DeadLetter: &v1alpha1.DeadLetter{Enabled: new(false)}}, []string{"spec.deadLetter.enabled: "}},
		"some dead letters":     {v1alpha1.QueueSpec{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(5))}}, []string{"spec.deadLetter.maxEntries: "}},
		"old dead letters":      {v1alpha1.QueueSpec{DeadLetter: &v1alpha1.DeadLetter{Retention: lasting(time.Hour)}}, []string{"spec.deadLetter.retention: "}},
		"all of them, as usual": {v1alpha1.QueueSpec{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0)), Retention: lasting(0)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wantTexts(t, Warnings(mail(func(q *v1alpha1.Queue) { q.Spec = row.spec })), row.want)
		})
	}
}

func TestChangeWarnings(t *testing.T) {
	before := mail(func(q *v1alpha1.Queue) {
		q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "high"}, {Name: "low"}}
	})
	after := before.DeepCopy()
	wantTexts(t, UpdateWarnings(before, after), nil)
	after.Spec.Priorities, after.Spec.MaxBacklog = after.Spec.Priorities[:1], new(int64(9))
	wantTexts(t, UpdateWarnings(before, after), []string{"spec.maxBacklog: a queue made without it", "spec.priorities: low is kept"})
}

func wantTexts(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
