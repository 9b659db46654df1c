package agenticsession

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// inputsCheckInterval is how long after its Pod got a node, and then how often, the operator checks whether the inputs
// of a runner that does not start exist, because it has no permission to watch Secrets.
const inputsCheckInterval = 30 * time.Second

// restoreObjects applies the objects of a running attempt that were deleted, and NetworkPolicies that were changed.
func (e *evaluation) restoreObjects() *Question {
	for _, object := range e.attemptObjects() {
		isCurrent, question := e.isCurrent(object)
		if question != nil {
			return question
		}
		if !isCurrent {
			e.decision.ApplyObjects = append(e.decision.ApplyObjects, object)
		}
	}
	if len(e.decision.ApplyObjects) > 0 {
		e.reportRestoration()
	}
	return nil
}

// attemptObjects returns the objects of a running attempt that can be built: without a SessionRunner not its
// NetworkPolicy, and while the session exceeds the limits of the SessionRunner no objects that depend on its settings.
func (e *evaluation) attemptObjects() []decision.Object {
	o := &e.observation
	if e.settings != nil {
		b := e.newObjectBuilder()
		return b.newChildObjects(b.newInputsSecret())
	}
	objects := []decision.Object{NewDefaultDenyPolicy(o.Session.Namespace)}
	if o.Runner != nil {
		objects = append(objects, newSessionNetworkPolicy(o.Session, o.Runner, &o.Network, &o.NetworkCheck))
	}
	return append(objects, e.newObjectBuilder().newLeaseObjects()...)
}

// isCurrent reports whether an object of a running attempt exists, or is no longer needed. The content is compared only
// for NetworkPolicies.
func (e *evaluation) isCurrent(object decision.Object) (bool, *Question) {
	switch object := object.(type) {
	case *networkingv1.NetworkPolicy:
		return IsNetworkPolicyCurrent(findNetworkPolicy(e.observation.NetworkPolicies, object.Name), object), nil
	case *corev1.Secret:
		return e.areInputsCurrent(object.Name)
	case *corev1.PersistentVolumeClaim: // read while the Pod waits for it
		claim, answered := e.observation.Answers.Claims[object.Name]
		return claim != nil || !answered, nil
	}
	return e.observation.Children[ChildKey{object.GetObjectKind().GroupVersionKind().Kind, object.GetName()}], nil
}

// areInputsCurrent reports whether the Secret with the inputs exists, or need not exist because the runner has started.
// If the spec was changed since the attempt began, its inputs cannot be built again.
func (e *evaluation) areInputsCurrent(name string) (bool, *Question) {
	isScheduled := findPodCondition(e.pod, corev1.PodScheduled, corev1.ConditionTrue) != nil
	if e.status.Attempt.RunnerStartTime != nil || name != e.status.Attempt.InputsRef.Name || !isScheduled ||
		!e.timer.HasReached(startupBegin(&e.status, e.job, e.pod).Add(inputsCheckInterval)) {
		return true, nil
	}
	exists, answered := e.observation.Answers.Secrets[name]
	if !answered {
		return false, &Question{Secret: name}
	}
	e.timer.RequeueWithin(inputsCheckInterval)
	return exists, nil
}

// reportRestoration reports that the API server refused an object, until the object is restored.
func (e *evaluation) reportRestoration() {
	reasons := map[decision.Class]string{decision.AlreadyExists: v1alpha1.ReasonNameTaken, decision.QuotaExceeded: v1alpha1.ReasonQuotaExceeded}
	c := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionBlocked)
	var problem decision.Problem
	switch refusal := e.observation.Refusal; {
	case refusal != nil && reasons[refusal.Class] != "":
		problem = decision.Problem{Reason: reasons[refusal.Class], Message: refusal.Message}
	case refusal != nil:
		problem = decision.Problem{Reason: v1alpha1.ReasonChildRefused, Message: refusal.Message}
	case c != nil && c.Status == metav1.ConditionTrue &&
		slices.Contains([]string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonChildRefused}, c.Reason):
		problem = decision.Problem{Reason: c.Reason, Message: c.Message}
	default:
		return
	}
	if e.obstacle == nil {
		e.obstacle = &obstacle{problem, true}
	}
	e.timer.RequeueWithin(e.retryInterval())
}
