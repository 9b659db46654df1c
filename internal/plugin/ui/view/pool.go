package view

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// Revision is the workers of one version of a pool.
type Revision struct {
	Name, Version, Image      string
	Role                      string // serves, rolling out, or kept for a rollback
	Replicas, Ready, Draining int32
	Succeeded, Failed         string
	ReadyShare                float64 // in percent of the workers of the pool
}

// Pool is the page of a WorkerPool.
type Pool struct {
	*Entry

	Facts       []Fact
	Workers     Chart
	Backlog     Chart
	Revisions   []Revision
	Explanation []string
	Problems    []render.Problem
	Conditions  []Condition
	Actions     []Action
	Past        *Past
}

// NewPool computes the page of a WorkerPool.
func NewPool(e *Entry, wp *v1alpha1.WorkerPool, history []Sample, past *Past, now time.Time) *Pool {
	status := &wp.Status
	history = past.before(history)
	v := &Pool{
		Entry: e, Problems: render.PoolProblems(wp), Conditions: newConditions(status.Conditions), Actions: poolActions(e, wp), Past: past,
		Facts: []Fact{
			{Name: "Ready", Value: fmt.Sprintf("%d of %d", status.Ready, status.Desired)},
			{Name: "Busy", Value: count(status.Busy)},
			{Name: "Draining", Value: number(status.Draining)},
			{Name: "Backlog", Value: count(status.Backlog)},
			{Name: "In flight", Value: count(status.InFlight)},
			objectiveFact(wp),
		},
		Workers: newChart("Workers", history, ChartSeries{"ready", func(s *Sample) *float64 { return s.Ready }}, ChartSeries{"busy", func(s *Sample) *float64 { return s.Busy }}, ChartSeries{"draining", func(s *Sample) *float64 { return s.Draining }}),
		Backlog: newChart("Backlog", history, ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }}),
	}
	if ptr.Deref(status.Snoozed, 0) > 0 {
		v.Facts = append(v.Facts, Fact{Name: "Snoozed", Value: count(status.Snoozed), Level: LevelWaiting})
	}
	if ptr.Deref(status.OpenBreakers, 0) > 0 {
		v.Facts = append(v.Facts, Fact{Name: "Open breakers", Value: count(status.OpenBreakers), Level: LevelProblem})
	}
	if wp.Spec.Autoscaling != nil && wp.Spec.Autoscaling.Suspend {
		v.Facts = append(v.Facts, Fact{Name: "Scaling", Value: "suspended", Level: LevelWaiting})
	}
	for _, line := range render.PoolExplanation(terminal.Style{}, wp, now.Truncate(time.Minute)) {
		v.Explanation = append(v.Explanation, cleanSpaces(line))
	}
	for i := range status.Revisions {
		v.Revisions = append(v.Revisions, newRevision(status, &status.Revisions[i]))
	}
	return v
}

func objectiveFact(wp *v1alpha1.WorkerPool) Fact {
	met := wp.Status.ObjectiveMet
	if wp.Spec.Autoscaling == nil || met == "" {
		return Fact{Name: "Wait, p95", Value: Unknown}
	}
	level := map[metav1.ConditionStatus]Level{metav1.ConditionTrue: LevelGood, metav1.ConditionFalse: LevelProblem}[met]
	return Fact{Name: "Wait, p95", Value: duration(wp.Status.WaitP95) + ", objective " + duration(&wp.Spec.Autoscaling.WaitP95.Duration), Level: level}
}

func newRevision(status *v1alpha1.WorkerPoolStatus, r *v1alpha1.RevisionStatus) Revision {
	role := "kept for a rollback"
	switch {
	case r.Name == status.CurrentRevision:
		role = "serves"
	case r.Name == status.UpdatedRevision:
		role = "rolling out"
	case r.Replicas > 0:
		role = "being replaced"
	}
	const percent = 100
	return Revision{
		Name: cleanLine(r.Name), Version: cleanLine(r.Version), Image: cleanLine(r.Image), Role: role,
		Replicas: r.Replicas, Ready: r.Ready, Draining: r.Draining, Succeeded: count(r.Succeeded), Failed: count(r.Failed),
		ReadyShare: min(percent, float64(r.Ready)/float64(max(status.Replicas, 1))*percent),
	}
}

func poolActions(e *Entry, wp *v1alpha1.WorkerPool) []Action {
	restart := newAction(e, "Restart workers", "Replaces all workers by new ones with a rollout. Old workers finish their messages first.", "restart").destroying(e)
	switch replicas := ptr.Deref(wp.Spec.Replicas, 0); {
	case wp.Spec.Autoscaling != nil && wp.Spec.Autoscaling.Suspend:
		return []Action{newAction(e, "Resume scaling", "The autoscaler changes the number of workers again.", "resume-scaling"), restart}
	case wp.Spec.Autoscaling != nil:
		return []Action{newAction(e, "Suspend scaling", "The autoscaler keeps the number of workers, and still reports its decisions.", "suspend-scaling"), restart}
	case replicas > 0:
		effect := fmt.Sprintf("Keeps %d of %d workers. The operator drains an idle worker, or else the youngest: it finishes its messages first.", replicas-1, replicas)
		drain := newAction(e, "Drain a worker", effect, "drain", fmt.Sprintf("--replicas=%d", replicas-1)).destroying(e)
		drain.Argument = number(replicas - 1)
		return []Action{drain, restart}
	}
	return []Action{restart}
}

const maxWorkers = 200

// Worker is a worker of a pool.
type Worker struct {
	Name, State, Revision, Node string
	Level                       Level
	Created, Since              time.Time
	// Drain is the action that drains the worker; nil if it already drains.
	Drain *Action
}

// Workers is the page of the workers of a WorkerPool.
type Workers struct {
	*Entry

	Workers []Worker
	More    int
	// Problem is why the workers cannot be shown.
	Problem string
	Command []string
}

// WorkerList is the arguments of the command that lists the workers of a pool.
func WorkerList(e *Entry) []string { return objectArgs(e, "workers", "--output=json") }

// NewWorkers reads the output of WorkerList, unless the command has a problem.
func NewWorkers(e *Entry, output []byte, problem string) *Workers {
	v := &Workers{Entry: e, Problem: problem, Command: objectArgs(e, "workers")}
	var all []render.Worker
	if problem == "" {
		if err := json.Unmarshal(output, &all); err != nil {
			v.Problem = "the workers cannot be read: " + cleanLine(err.Error())
		}
	}
	v.More = max(0, len(all)-maxWorkers)
	for _, w := range all[:len(all)-v.More] {
		var drain *Action
		if w.State != "Terminating" && w.State != "Draining" {
			drain = DrainWorker(e, w.Name)
		}
		v.Workers = append(v.Workers, Worker{
			Name: cleanLine(w.Name), State: cleanLine(w.State), Revision: orUnknown(cleanLine(w.Revision)), Node: orUnknown(cleanLine(w.Node)),
			Level: workerLevels[w.State], Created: w.Created, Since: w.Since, Drain: drain,
		})
	}
	return v
}

var workerLevels = map[string]Level{"Ready": LevelGood, "NotReady": LevelProblem, "Starting": LevelActive, "Draining": LevelWaiting, "Terminating": LevelWaiting}

// DrainWorkerID is the ID of DrainWorker.
const DrainWorkerID = "drain-worker"

// DrainWorker is the action that drains a worker; nil if a Pod cannot have this name. The command checks that it is a worker of this
// pool.
func DrainWorker(e *Entry, worker string) *Action {
	if len(validation.IsDNS1123Subdomain(worker)) > 0 {
		return nil
	}
	return &Action{
		ID: DrainWorkerID, Argument: worker, Label: "Drain " + worker, Destroys: true, Confirm: worker, Args: append(objectArgs(e, "drain"), worker),
		Effect: "Evicts the worker: it takes no more messages and finishes those in flight within its grace period, and the pool replaces it. " +
			"The disruption budget of the pool limits how many workers are evicted at once.",
	}
}
