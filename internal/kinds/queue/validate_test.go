package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestWarnings(t *testing.T) {
	nats := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	two := []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 2}}, {Name: "low", Share: v1alpha1.Share{Weight: 1}}}
	for name, row := range map[string]struct {
		spec v1alpha1.QueueSpec
		want []string
	}{
		"the defaults":                {v1alpha1.QueueSpec{}, nil},
		"maxBacklog on NATS":          {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: nats}, MaxBacklog: new(int64(9))}, []string{"spec.maxBacklog: NATS cannot delay messages"}},
		"maxInFlight with priorities": {v1alpha1.QueueSpec{Priorities: two, MaxInFlight: new(int32(4))}, []string{"spec.maxInFlight: each priority gets a share"}},
		"strict priorities":           {v1alpha1.QueueSpec{Priorities: two, StrictPriority: true}, []string{"spec.strictPriority: "}},
		"no dead letters":             {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0))}}}, []string{"spec.deadLetter.maxEntries: messages"}},
		"limited dead letters":        {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(5))}}}, []string{"spec.deadLetter.maxEntries: the oldest"}},
		"expiring dead letters":       {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(time.Hour)}}}, []string{"spec.deadLetter.retention: "}},
		"one replica":                 {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(1))}}, []string{"spec.storage.replicas: "}},
		"storage in memory":           {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Type: v1alpha1.StorageMemory}}, []string{"spec.storage.type: "}},
		"three replicas on disk":      {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(3)), Type: v1alpha1.StorageFile}}, nil},
		"dead letters without limits": {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(0)}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assertPrefixes(t, Warnings(newQueue(func(q *v1alpha1.Queue) { q.Spec = row.spec })), row.want)
		})
	}
}

func TestUpdateWarnings(t *testing.T) {
	before := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "high"}, {Name: "low"}}
	})
	after := before.DeepCopy()
	assertPrefixes(t, UpdateWarnings(before, after), nil)
	after.Spec.Priorities, after.Spec.MaxBacklog = after.Spec.Priorities[:1], new(int64(9))
	assertPrefixes(t, UpdateWarnings(before, after), []string{"spec.maxBacklog: NATS 2.12 or later cannot enforce it", "spec.priorities: low stays on the broker"})
}

func assertPrefixes(t *testing.T, got, want []string) {
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
