package pool

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Observation is all that a decision rests on. Decide changes nothing of it.
type Observation struct {
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
	Config WorkerConfig
	// Operator is what the workers need of the operator.
	Operator OperatorSettings
	// Revisions there are, in any order.
	Revisions []Revision
	// Workers there are, in any order.
	Workers []Worker
	// Stats of the queues; nil if they could not be read.
	Stats *QueueStats
	// StatsError is why there are no figures.
	StatsError string
	// Limits are what the queues allow to all workers together.
	Limits QueueLimits
	// Memory that the last decision about the number of workers handed back.
	Memory scaling.Memory
	// Now is the time of the decision.
	Now time.Time
}

// WorkerConfig is what the workers read: it changes without a new revision, but for Secrets.
type WorkerConfig struct {
	// File that says how to work, and Queues by their names, as the environment has them.
	File, Queues string
	// Secrets that the file refers to, by the directory they are mounted as.
	Secrets map[string]MountedSecret
}

// MountedSecret are keys of a Secret as files; all of them if none is named.
type MountedSecret struct {
	Secret string
	Keys   []string
}

// Problem is why a pool cannot do what its spec says, as a condition has it.
type Problem struct {
	Reason, Message string
}

// OperatorSettings is what workers need of it.
type OperatorSettings struct {
	// Image of the operator, which has the runtime for drain mode Sidecar.
	Image string
	// PodMonitors says that the cluster has that kind.
	PodMonitors bool
}

// QueueLimits are what queues allow; 0: no bound.
type QueueLimits struct {
	RatePerSecond float64
	MaxInFlight   int64
}

// QueueStats are what brokers say of the pool's queues together.
type QueueStats struct {
	scaling.BacklogStats
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
	// CreationFailure is why its Pods cannot be made, such as a quota; empty if they can.
	CreationFailure string
	// History is what it has been through.
	History History
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
	// WaitingReason is why the container does not, such as ImagePullBackOff.
	WaitingReason string
	// Terminating: it has been deleted, and finishes.
	Terminating bool
	// DrainingSince, Idle and Leaving are since when it is asked to finish, says to have nothing
	// in flight, and is next to be removed, as written on the Pod.
	DrainingSince, IdleSince, RemovableSince time.Time
	// Stats are its own word; nil if it did not give any.
	Stats *WorkerStats
}

// IsReady tells whether it takes messages, as its probes say.
func (w *Worker) IsReady() bool { return !w.ReadySince.IsZero() }

// WorkerStats are what a worker says of itself.
type WorkerStats struct {
	// Draining: it takes no more messages.
	Draining bool
	// Drained: it has none in flight either.
	Drained bool
	// InFlight messages it works on, Held ones it has fetched in advance.
	InFlight, Prefetched int64
	// Succeeded and Failed messages since it started; nil if it does not say.
	Succeeded, Failed *int64
}

// Object is one of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Decision is what to do: first record Status, then the rest in the order of the fields.
type Decision struct {
	// Status to record. Nothing else of the plan may happen if that fails.
	Status v1alpha1.WorkerPoolStatus
	// StatusDeferrable says that Status differs from what is stored in figures only: recording it
	// may wait.
	StatusDeferrable bool
	// Memory to give to the next decision.
	Memory scaling.Memory
	// KeepFinalizer says whether the pool is to carry its finalizer. Adding comes before all
	// else, removing after.
	KeepFinalizer bool
	// DrainStates to write on Pods, each only over the version that was read.
	DrainStates []DrainState
	// DrainRequests workers to drain, or to go on.
	DrainRequests []DrainRequest
	// SharedObjects objects that all revisions share.
	SharedObjects []Object
	// CurrentWorkload the revision of the spec as this says, but for its replicas, if Drifted; nil: there
	// is none yet.
	CurrentWorkload Object
	// Resizes revisions, or make them.
	Resizes []RevisionSize
	// DeleteRevisions revisions without workers, by name.
	DeleteRevisions []string
	// Events to tell, now that the status is stored.
	Events []Event
	// RequeueAfter is when to decide again if nothing happens before; 0 is never.
	RequeueAfter time.Duration
}

// DrainState is where a worker stands on its way out; zero times are none.
type DrainState struct {
	Worker                                   string
	DrainingSince, IdleSince, RemovableSince time.Time
}

// DrainRequest is what a worker is asked for.
type DrainRequest struct {
	Worker string
	// Drain, or else resume.
	Drain bool
}

// RevisionSize of a revision.
type RevisionSize struct {
	Name     string
	Replicas int32
	History  History
	// NewWorkload is the whole object, if there is none yet.
	NewWorkload Object
	// Removable are the workers that may go, and Unstarted those of them that did not run.
	Removable, Unstarted []string
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
