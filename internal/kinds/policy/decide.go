package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Secrets are not watched, because a watch needs the permission to list all Secrets. Valid Secrets are read again after
// validSecretInterval, missing or invalid Secrets after invalidSecretInterval.
const (
	validSecretInterval   = 5 * time.Minute
	invalidSecretInterval = 15 * time.Second
)

// SecretInterval returns the time until the Secrets of a default broker are read again, given the problem with them; nil
// without a problem.
func SecretInterval(problem *decision.Problem) time.Duration {
	if problem != nil {
		return invalidSecretInterval
	}
	return validSecretInterval
}

// Observation is the input of Decide, which does not change it.
type Observation struct {
	Policy *v1alpha1.Policy
	// Objects of the namespace.
	Objects SelectableObjects
	// BrokerProblem is the problem with the Secrets of the default broker; nil without a problem.
	BrokerProblem *decision.Problem
	// Now is the time of the decision.
	Now time.Time
}

// SelectableObjects are the objects of a namespace that Policies can select. It is small, because it is stored for each
// namespace.
type SelectableObjects struct {
	// Queues are the labels of each Queue.
	Queues      []labels.Set
	WorkerPools []SelectablePool
}

// SelectablePool is a WorkerPool that Policies can select.
type SelectablePool struct {
	Labels labels.Set
	// Replicas of its status.
	Replicas int32
}

// NewSelectableObjects returns the objects with their labels.
func NewSelectableObjects(queues []v1alpha1.Queue, pools []v1alpha1.WorkerPool) SelectableObjects {
	var objects SelectableObjects
	for i := range queues {
		objects.Queues = append(objects.Queues, queues[i].Labels)
	}
	for i := range pools {
		objects.WorkerPools = append(objects.WorkerPools, SelectablePool{pools[i].Labels, pools[i].Status.Replicas})
	}
	return objects
}

// Decision is the result of Decide.
type Decision struct {
	// Status to record.
	Status v1alpha1.PolicyStatus
	// Events to emit once Status is stored.
	Events []decision.Event
	// RequeueAfter is the time until the next decision if nothing else triggers it; 0: never.
	RequeueAfter time.Duration
}

// Decide counts the objects that a Policy selects, and reports whether the Policy can be applied.
func Decide(observation Observation) Decision {
	p := observation.Policy
	d := Decision{Status: *p.Status.DeepCopy()}
	status := &d.Status
	status.ObservedGeneration = p.Generation
	countSelected(&observation, status)
	decision.Set(&status.Conditions, p.Generation, metav1.NewTime(observation.Now), summarize(&observation, status))
	was := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	isNew := was == nil || was.Status != ready.Status || was.Reason != ready.Reason
	if ready.Status == metav1.ConditionFalse && isNew {
		d.Events = append(d.Events, decision.WarningEvent(ready.Reason, "Observe", ready.Message))
	}
	if policyDefaults(p).Broker != nil {
		d.RequeueAfter = SecretInterval(observation.BrokerProblem)
	}
	return d
}

func countSelected(observation *Observation, status *v1alpha1.PolicyStatus) {
	status.Queues, status.WorkerPools, status.Replicas = 0, 0, 0
	selector, _ := SelectorOf(observation.Policy) // selects nothing if it is invalid
	for _, queue := range observation.Objects.Queues {
		if selector.Matches(queue) {
			status.Queues++
		}
	}
	for _, pool := range observation.Objects.WorkerPools {
		if selector.Matches(pool.Labels) {
			status.WorkerPools++
			status.Replicas += pool.Replicas
		}
	}
}

// summarize reports the first problem that prevents the Policy from being applied, or else the number of selected objects.
func summarize(observation *Observation, status *v1alpha1.PolicyStatus) decision.Summary {
	problem := observation.BrokerProblem
	if _, err := SelectorOf(observation.Policy); err != nil {
		problem = &decision.Problem{Reason: v1alpha1.ReasonSelectorInvalid, Message: err.Error() + "; the Policy selects nothing"}
	}
	if problem != nil {
		progress := decision.Stuck
		if problem.Reason == v1alpha1.ReasonSecretNotFound {
			progress = decision.InProgress // it can still be created, without a change of the Policy
		}
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message, Progress: progress}
	}
	summary := decision.Summary{
		Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: selectionMessage(observation.Policy, status), Progress: decision.Settled,
	}
	if status.Queues+status.WorkerPools == 0 {
		summary.Reason = v1alpha1.ReasonNothingSelected
	}
	return summary
}

func selectionMessage(p *v1alpha1.Policy, s *v1alpha1.PolicyStatus) string {
	if s.Queues+s.WorkerPools == 0 {
		return "selects no Queue and no WorkerPool of the namespace"
	}
	text := fmt.Sprintf("selects %s and %s", pluralize(s.Queues, "Queue"), pluralize(s.WorkerPools, "WorkerPool"))
	limit := policyLimits(p).MaxReplicasTotal
	switch {
	case s.WorkerPools == 0:
	case limit == nil:
		text += fmt.Sprintf(" with %s", pluralize(s.Replicas, "replica"))
	case s.Replicas > *limit:
		text += fmt.Sprintf(" with %s, which exceeds maxReplicasTotal %d: workers are being drained", pluralize(s.Replicas, "replica"), *limit)
	default:
		text += fmt.Sprintf(" with %s of maxReplicasTotal %d", pluralize(s.Replicas, "replica"), *limit)
	}
	return text
}

func pluralize(count int32, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
