package view

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

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
