package pool

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Input is all that a decision rests on. Decide changes nothing of it.
type Input struct {
	// Pool as last read. It may be stale: the plan's status is written over exactly this
	// version or not at all.
	Pool *v1alpha1.WorkerPool
	// Effective is what holds after Policies; nil if no Policy says anything.
	Effective *v1alpha1.WorkerPoolEffective
	// Budget is how many workers the pool may have of what several share; nil: no bound.
	Budget *int32
	// Problem keeps the pool from being scaled, such as a Queue that is not there.
	Problem *Problem
	// Config is what the workers read.
	Config Config
	// Operator is what the workers need of the operator.
	Operator Operator
	// Revisions there are, in any order.
	Revisions []Revision
	// Workers there are, in any order.
	Workers []Worker
	// Figures of the queues; nil if they could not be read.
	Figures *Figures
	// Unread is why there are no figures.
	Unread string
	// Limits are what the queues allow to all workers together.
	Limits Limits
	// Memory that the last decision about the number of workers handed back.
	Memory scaling.Memory
	// Now is the time of the decision.
	Now time.Time
}

// Config is what the workers read: it changes without a new revision, but for Secrets.
type Config struct {
	// File that says how to work, and Queues by their names, as the environment has them.
	File, Queues string
	// Secrets that the file refers to, by the directory they are mounted as.
	Secrets map[string]SecretFiles
}

// SecretFiles are keys of a Secret as files; all of them if none is named.
type SecretFiles struct {
	Secret string
	Keys   []string
}

// Problem is why a pool cannot do what its spec says, as a condition has it.
type Problem struct {
	Reason, Message string
}

// Operator is what workers need of it.
type Operator struct {
	// Image of the operator, which has the runtime for drain mode Sidecar.
	Image string
	// PodMonitors says that the cluster has that kind.
	PodMonitors bool
}

// Limits are what queues allow; 0: no bound.
type Limits struct {
	RatePerSecond float64
	MaxInFlight   int64
}

// Figures are what brokers say of the pool's queues together.
type Figures struct {
	scaling.Figures
	// InFlightKnown says that InFlight comes from the broker. Otherwise the workers' word
	// is all there is.
	InFlightKnown bool
	// Lease after which the broker gives a silent worker's messages to others.
	Lease time.Duration
	// Delayed messages are due later than those of Backlog.
	Delayed int64
	// WaitP95 is what messages waited lately; nil: not known.
	WaitP95 *time.Duration
}

// Revision is a Deployment or StatefulSet of the pool.
type Revision struct {
	Name, Hash     string
	Version, Image string
	Created        time.Time
	// Ordered: its workers go in the order of their numbers, the highest first, as those of
	// a StatefulSet do.
	Ordered bool
	// Replicas it is asked for.
	Replicas int32
	// Stuck is why its Pods cannot be made, such as a quota; empty if they can.
	Stuck string
	// Past is what it has been through.
	Past Past
}

// Worker is a Pod of the pool.
type Worker struct {
	Name     string
	Revision string // the hash
	Created  time.Time
	// Ordinal in its StatefulSet.
	Ordinal int32
	// Assigned to a node, Pending, and Ready since that time, as its status says.
	Assigned, Pending bool
	ReadySince        time.Time
	// Running says that its worker container runs.
	Running bool
	// Waiting is why the container does not, such as ImagePullBackOff.
	Waiting string
	// Terminating: it has been deleted, and finishes.
	Terminating bool
	// Draining, Idle and Leaving are since when it is asked to finish, says to have nothing
	// in flight, and is next to be removed, as written on the Pod.
	Draining, Idle, Leaving time.Time
	// Stats are its own word; nil if it did not give any.
	Stats *Stats
}

// Ready tells whether it takes messages, as its probes say.
func (w *Worker) Ready() bool { return !w.ReadySince.IsZero() }

// Stats are what a worker says of itself.
type Stats struct {
	// Draining: it takes no more messages.
	Draining bool
	// Drained: it has none in flight either.
	Drained bool
	// InFlight messages it works on, Held ones it has fetched in advance.
	InFlight, Held int64
	// Succeeded and Failed messages since it started; nil if it does not say.
	Succeeded, Failed *int64
}

// Object is one of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Plan is what to do: first record Status, then the rest in the order of the fields.
type Plan struct {
	// Status to record. Nothing else of the plan may happen if that fails.
	Status v1alpha1.WorkerPoolStatus
	// Deferrable says that Status differs from what is stored in figures only: recording it
	// may wait.
	Deferrable bool
	// Memory to give to the next decision.
	Memory scaling.Memory
	// Finalizer says whether the pool is to carry its finalizer. Adding comes before all
	// else, removing after.
	Finalizer bool
	// Marks to write on Pods, each only over the version that was read.
	Marks []Mark
	// Ask workers to drain, or to go on.
	Ask []Request
	// Apply objects that all revisions share.
	Apply []Object
	// Keep the revision of the spec as this says, but for its replicas, if Drifted; nil: there
	// is none yet.
	Keep Object
	// Resize revisions, or make them.
	Resize []Size
	// Remove revisions without workers, by name.
	Remove []string
	// Events to tell, now that the status is stored.
	Events []Event
	// RequeueAfter is when to decide again if nothing happens before; 0 is never.
	RequeueAfter time.Duration
}

// Mark is where a worker stands on its way out; zero times are none.
type Mark struct {
	Worker                  string
	Draining, Idle, Leaving time.Time
}

// Request is what a worker is asked for.
type Request struct {
	Worker string
	// Drain, or else resume.
	Drain bool
}

// Size of a revision.
type Size struct {
	Name     string
	Replicas int32
	Past     Past
	// New is the whole object, if there is none yet.
	New Object
	// Finished are the workers that may go, and Unstarted those of them that did not run.
	Finished, Unstarted []string
	// Ordered: they go in the order of their numbers.
	Ordered bool
}

// Event is something worth telling the people who watch a WorkerPool.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Action  string
	Message string
}
