package pool

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// noon is when all scenes play.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// scene is an input that tests change.
type scene struct{ Input }

// scenery is a pool that wants so many workers, and has none yet. Its broker has nothing.
func scenery(replicas int32) *scene {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "ns", UID: "pool", Generation: 1}}
	wp.Spec.Image, wp.Spec.Concurrency = "worker:1", 10
	wp.Spec.Workload = v1alpha1.WorkloadDeployment
	wp.Spec.Replicas = &replicas
	wp.Status.ObservedGeneration, wp.Status.Desired = 1, replicas
	s := &scene{Input{Pool: wp, Now: noon, Config: Config{File: "x"}}}
	s.Figures = &Figures{InFlightKnown: true, Lease: 30 * time.Second}
	return s
}

// hash of the revision that the spec asks for.
func (s *scene) hash() string { return newDecision(s.Input).updated.Hash }

// revision adds the one that the spec asks for now, with so many ready and idle workers.
func (s *scene) revision(workers int) *scene {
	hash := s.hash()
	s.Revisions = append(s.Revisions, Revision{
		Name: RevisionName("mail", hash), Hash: hash, Created: noon.Add(-time.Hour), Replicas: int32(workers),
		Ordered: s.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
	})
	for i := range workers {
		s.Workers = append(s.Workers, Worker{
			Name: fmt.Sprintf("%s-%d", s.Pool.Spec.Image, i), Revision: hash, Ordinal: int32(i),
			Created: noon.Add(-time.Hour + time.Duration(i)*time.Minute), ReadySince: noon.Add(-30 * time.Minute),
			Assigned: true, Running: true,
			Stats: &Stats{Succeeded: new(int64(1)), Failed: new(int64(0))},
		})
	}
	return s
}

// serving has the revision be the one that serves.
func (s *scene) serving(workers int) *scene {
	s.revision(workers)
	r := &s.Revisions[len(s.Revisions)-1]
	r.Past.Proven = 1
	s.Pool.Status.CurrentRevision = r.Name
	return s
}

// image changes the spec's.
func (s *scene) image(image string) *scene {
	s.Pool.Spec.Image = image
	return s
}

// wants so many workers from now on.
func (s *scene) wants(replicas int32) *scene {
	s.Pool.Spec.Replicas = &replicas
	return s
}

// worker changes one, by its name.
func (s *scene) worker(name string, change func(w *Worker)) *scene {
	for i := range s.Workers {
		if s.Workers[i].Name == name {
			change(&s.Workers[i])
		}
	}
	return s
}

// busy has so many messages in flight, as the broker knows.
func (s *scene) busy(name string, inFlight int64) *scene {
	s.Figures.InFlight += inFlight
	return s.worker(name, func(w *Worker) { w.Stats.InFlight = inFlight })
}

// drained has been asked to drain a while ago, and says that it has nothing in flight.
func drained(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.Draining, w.Idle = noon.Add(-ago), noon.Add(-ago)
		w.Stats = &Stats{Draining: true, Drained: true}
	}
}

// leaving is drained, and marked as next to go.
func leaving(w *Worker) {
	drained(time.Minute)(w)
	w.Leaving = noon.Add(-10 * time.Second)
}

// sizes are the replicas that a plan asks of each image's revision, and of the others what
// they have.
func (s *scene) sizes(plan *Plan) map[string]int32 {
	sizes := map[string]int32{}
	for _, r := range s.Revisions {
		sizes[r.Name] = r.Replicas
	}
	for _, size := range plan.Resize {
		sizes[size.Name] = size.Replicas
	}
	return sizes
}

// drains are the workers that a plan has begin to drain, and leaves those it has leave.
func marked(plan *Plan, is func(m Mark) bool) []string {
	var names []string
	for _, m := range plan.Marks {
		if is(m) {
			names = append(names, m.Worker)
		}
	}
	return names
}
