package decision

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

// ControllerReferences makes an object of this API the controller of a child. The reference does not block the owner's
// deletion in the foreground, which requires a permission on finalizers. Only the Jobs of sessions do: other kinds that need an order of
// deletion have their own finalizers.
func ControllerReferences(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
	}}
}

// SetScheduleLabel adds the label with the name of the Schedule that controls a run to the labels of its Jobs, so that reports
// can group the Jobs of all runs of a Schedule.
func SetScheduleLabel(labels map[string]string, run metav1.Object) {
	controller := metav1.GetControllerOf(run)
	if controller != nil && controller.Kind == "Schedule" && controller.APIVersion == v1alpha1.GroupVersion.String() {
		labels[v1alpha1.LabelSchedule] = controller.Name // at most 41 characters
	}
}

// WasCreatedFor reports whether the operator created the child for this owner. A child that the garbage collector must not
// delete has no controller; the label uidLabel identifies its owner.
func WasCreatedFor(owner, child metav1.Object, uidLabel string) bool {
	if metav1.GetControllerOf(child) != nil {
		return metav1.IsControlledBy(child, owner)
	}
	return child.GetLabels()[uidLabel] == string(owner.GetUID())
}

// FindEndCondition returns the condition with which a Job ended; nil if it has not ended. Only Complete and Failed count: with
// FailureTarget, SuccessCriteriaMet, or a counted failure, Pods may still run.
func FindEndCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// HasPodEnded reports whether no container of a Pod runs or will run.
func HasPodEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsSidecar reports whether an init container of a Pod runs beside the other containers, as a native sidecar.
func IsSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	})
}

// defaultRegion is the region of a bucket without a region.
const defaultRegion = "us-east-1"

// BucketFlags returns the flags with which session-runner stores files in a bucket. directory has the credentials.
func BucketFlags(s3 *v1alpha1.ArchiveS3, directory string) []string {
	return []string{
		"--endpoint=" + LiteralValue(s3.Endpoint), "--bucket=" + s3.Bucket, "--prefix=" + s3.Prefix,
		"--region=" + cmp.Or(s3.Region, defaultRegion), "--credentials=" + directory,
	}
}

// LiteralValue escapes a variable or an argument, so that Kubernetes does not replace $(NAME) in it by the value of another
// variable.
func LiteralValue(text string) string { return strings.ReplaceAll(text, "$", "$$") }

const (
	// maxTerminationMessage is how much the kubelet reads of a container's termination message, from its end. It divides
	// maxPodTerminationMessages equally among all containers of a Pod, to cut each message at its end:
	// MaxContainerTerminationMessageLength and MaxPodTerminationMessageLogLength in the kubelet.
	maxTerminationMessage     = 4096
	maxPodTerminationMessages = 12288
)

// TerminationMessageLimit returns the length in bytes of the longest termination message that the kubelet reports for a Pod
// with this number of containers of all types, at least one. A message of this length may have been cut.
func TerminationMessageLimit(containers int) int {
	return min(maxTerminationMessage, maxPodTerminationMessages/containers)
}

// CountContainers returns the number of init, regular and ephemeral containers of a Pod.
func CountContainers(pod *corev1.PodSpec) int {
	return len(pod.InitContainers) + len(pod.Containers) + len(pod.EphemeralContainers)
}
