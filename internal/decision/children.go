package decision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// HexDigest returns the first characters of the hexadecimal SHA-256 hash.
func HexDigest(raw []byte, length int) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:length]
}

// ContentHash returns a hash of this length of a value's JSON form.
func ContentHash(value any, length int) string {
	raw, err := json.Marshal(value)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%#v", value)
	}
	return HexDigest(raw, length)
}

// ControllerReferences makes an object of this API the controller of a child. The reference does
// not block the owner's deletion: that requires a permission on finalizers, and the finalizers of
// the kinds that need an order ensure it.
func ControllerReferences(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
	}}
}

// SetScheduleLabel adds the label with the name of the Schedule that controls a run to the labels of its Jobs, so that
// reports can group the Jobs of all runs of a Schedule.
func SetScheduleLabel(labels map[string]string, run metav1.Object) {
	controller := metav1.GetControllerOf(run)
	if controller != nil && controller.Kind == "Schedule" && controller.APIVersion == v1alpha1.GroupVersion.String() {
		labels[v1alpha1.LabelSchedule] = controller.Name // at most 41 characters
	}
}

// WasCreatedFor reports whether the operator created the child for this owner. A child that the
// garbage collector must not delete has no controller; the label uidLabel identifies its owner.
func WasCreatedFor(owner, child metav1.Object, uidLabel string) bool {
	if metav1.GetControllerOf(child) != nil {
		return metav1.IsControlledBy(child, owner)
	}
	return child.GetLabels()[uidLabel] == string(owner.GetUID())
}

// FindEndCondition returns the condition with which a Job ended; nil if it has not ended. Only
// Complete and Failed count: with FailureTarget, SuccessCriteriaMet, or a counted failure, Pods may
// still run.
func FindEndCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
