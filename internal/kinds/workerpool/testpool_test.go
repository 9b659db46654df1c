package workerpool

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// testTime is the time of all decisions in tests.
var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// testPool is an observation that tests change.
type testPool struct{ Observation }

// newTestPool returns a pool with spec.replicas, without workers and without messages.
func newTestPool(replicas int32) *testPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "ns", UID: "pool", Generation: 1}}
	wp.Spec.Image, wp.Spec.Concurrency, wp.Spec.Workload, wp.Spec.Replicas = "worker:1", 10, v1alpha1.WorkloadDeployment, &replicas
	wp.Status.ObservedGeneration, wp.Status.Desired = 1, replicas
	s := &testPool{Observation{Pool: wp, Now: testTime, Config: WorkerConfig{File: "x"}}}
	s.Stats = &QueueStats{InFlightKnown: true, Lease: 30 * time.Second}
	return s
}

// revisionHash returns the hash of the revision that the spec asks for.
func (s *testPool) revisionHash() string { return newFleet(s.Observation).updated.Hash }

// revisionName returns the name of that revision.
func (s *testPool) revisionName() string { return childObjectName("mail", s.revisionHash()) }

// withRevision adds the revision that the spec asks for, with ready and idle workers.
func (s *testPool) withRevision(workers int) *testPool {
	hash := s.revisionHash()
	s.Revisions = append(s.Revisions, Revision{
		Name: s.revisionName(), Hash: hash, Created: testTime.Add(-time.Hour), Replicas: int32(workers),
		Ordered: s.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
	})
	for i := range workers {
		s.Workers = append(s.Workers, Worker{
			Name: fmt.Sprintf("%s-%d", s.Pool.Spec.Image, i), Revision: hash,
			Created: testTime.Add(-time.Hour + time.Duration(i)*time.Minute), ReadySince: testTime.Add(-30 * time.Minute),
			Assigned: true, Running: true,
			Stats: &WorkerStats{Succeeded: new(int64(1)), Failed: new(int64(0))},
		})
		if s.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet {
			s.Workers[len(s.Workers)-1].Ordinal = int32(i)
		}
	}
	return s
}

// withCurrentRevision adds a revision that serves.
func (s *testPool) withCurrentRevision(workers int) *testPool {
	s.withRevision(workers)
	r := &s.Revisions[len(s.Revisions)-1]
	r.History.ProvenWorkers = 1
	s.Pool.Status.CurrentRevision = r.Name
	return s
}

// withImage changes the image of the spec.
func (s *testPool) withImage(image string) *testPool { s.Pool.Spec.Image = image; return s }

// withReplicas changes the replicas of the spec.
func (s *testPool) withReplicas(replicas int32) *testPool {
	s.Pool.Spec.Replicas = &replicas
	return s
}

// changeWorker changes the worker with the name.
func (s *testPool) changeWorker(name string, change func(w *Worker)) *testPool {
	for i := range s.Workers {
		if s.Workers[i].Name == name {
			change(&s.Workers[i])
		}
	}
	return s
}

// withInFlight adds messages in flight to a worker and to the stats of the broker.
func (s *testPool) withInFlight(name string, inFlight int64) *testPool {
	s.Stats.InFlight += inFlight
	return s.changeWorker(name, func(w *Worker) { w.Stats.InFlight = inFlight })
}

// drainedSince returns a change to a worker that reports to be drained.
func drainedSince(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.DrainingSince, w.IdleSince = testTime.Add(-ago), testTime.Add(-ago)
		w.Stats = &WorkerStats{Draining: true, Drained: true}
	}
}

// markedRemovable changes a worker to be drained and marked as removable.
func markedRemovable(w *Worker) {
	drainedSince(time.Minute)(w)
	w.RemovableSince = testTime.Add(-10 * time.Second)
}

// plannedReplicas returns the replicas of each revision after the decision.
func (s *testPool) plannedReplicas(decision *Decision) map[string]int32 {
	sizes := map[string]int32{}
	for _, r := range s.Revisions {
		sizes[r.Name] = r.Replicas
	}
	for _, size := range decision.Resizes {
		sizes[size.Name] = size.Replicas
	}
	return sizes
}

// workersWhere returns the workers with a matching drain state in the decision.
func workersWhere(decision *Decision, matches func(DrainState) bool) []string {
	var names []string
	for _, m := range decision.DrainStates {
		if matches(m) {
			names = append(names, m.Worker)
		}
	}
	return names
}
