package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Observation is what was seen of a Policy's namespace.
type Observation struct {
	Queues      []v1alpha1.Queue
	WorkerPools []v1alpha1.WorkerPool
	// BrokerProblem is why the default broker's Secrets cannot be used; nil: they can, or there is
	// no default broker.
	BrokerProblem *Problem
}

// Problem is why a Policy is not ready, as a condition has it.
type Problem struct{ Reason, Message string }

// Status tells whom a Policy says something to, and whether it can.
func Status(p *v1alpha1.Policy, seen *Observation) v1alpha1.PolicyStatus {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration = p.Generation
	status.Queues, status.WorkerPools, status.Replicas = 0, 0, 0
	problem := seen.BrokerProblem
	if _, err := SelectsLabels(p, nil); err != nil { // it is as wrong for any labels
		problem = &Problem{v1alpha1.ReasonSelectorInvalid, err.Error() + "; it selects nothing"}
	}
	for i := range seen.Queues {
		if selectsObject(p, seen.Queues[i].Labels) {
			status.Queues++
		}
	}
	for i := range seen.WorkerPools {
		if selectsObject(p, seen.WorkerPools[i].Labels) {
			status.WorkerPools++
			status.Replicas += seen.WorkerPools[i].Status.Replicas
		}
	}
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation,
		Reason: v1alpha1.ReasonReady, Message: selectionMessage(p, &status),
	}
	switch {
	case problem != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, problem.Reason, problem.Message
	case status.Queues+status.WorkerPools == 0:
		ready.Reason = v1alpha1.ReasonNothingSelected
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

// selectsObject tells whether a Policy that can be read selects an object with these labels.
func selectsObject(p *v1alpha1.Policy, object map[string]string) bool {
	matches, err := SelectsLabels(p, object)
	return err == nil && matches
}

// selectionMessage a Policy says something to, in words.
func selectionMessage(p *v1alpha1.Policy, s *v1alpha1.PolicyStatus) string {
	if s.Queues+s.WorkerPools == 0 {
		return "selects no Queue and no WorkerPool of the namespace"
	}
	text := fmt.Sprintf("selects %s and %s", pluralize(s.Queues, "Queue"), pluralize(s.WorkerPools, "WorkerPool"))
	most := policyLimits(p).MaxReplicasTotal
	switch {
	case s.WorkerPools == 0:
	case most == nil:
		text += fmt.Sprintf(" with %s", pluralize(s.Replicas, "replica"))
	case s.Replicas > *most:
		text += fmt.Sprintf(" with %s, more than the %d of maxReplicasTotal: workers are drained", pluralize(s.Replicas, "replica"), *most)
	default:
		text += fmt.Sprintf(" with %s of the %d of maxReplicasTotal", pluralize(s.Replicas, "replica"), *most)
	}
	return text
}

func pluralize(number int32, what string) string {
	if number == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", number, what)
}

// Troubled tells whether a Policy has come to be not ready, or so for another reason, with
// the condition that says why.
func Troubled(before, after *v1alpha1.PolicyStatus) (*metav1.Condition, bool) {
	was, is := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if is == nil || is.Status != metav1.ConditionFalse {
		return nil, false
	}
	return is, was == nil || was.Status != is.Status || was.Reason != is.Reason
}
