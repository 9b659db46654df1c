package workerpool

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Labels and annotations of the objects of a pool.
const (
	// LabelWorkerPool is the pool's name, truncated to the length of a label. It selects the
	// workers. Ownership is always read from the controller reference.
	LabelWorkerPool = v1alpha1.Prefix + "workerpool"
	// LabelRevision is the hash of a worker's revision.
	LabelRevision = v1alpha1.Prefix + "revision"
	// AnnotationWorkerPool on a worker's Pod is the pool's full name.
	AnnotationWorkerPool = v1alpha1.Prefix + "workerpool"
	// annotationConnection on a worker's Pod has settings of its connection to the broker, if there are any.
	annotationConnection = v1alpha1.Prefix + "broker-connection"
	// LabelAppVersion is the recommended label for the version.
	LabelAppVersion = "app.kubernetes.io/version"

	// AnnotationRolloutHistory on a revision is the History of its rollout, in JSON.
	AnnotationRolloutHistory = v1alpha1.Prefix + "rollout-history"
	// AnnotationImage on a revision is the image of its worker container, for display.
	AnnotationImage = v1alpha1.Prefix + "image"
	// AnnotationDraining, AnnotationIdle and AnnotationRemovable on a Pod are the times at which
	// its worker reached these drain states.
	AnnotationDraining  = v1alpha1.Prefix + "draining"
	AnnotationIdle      = v1alpha1.Prefix + "idle"
	AnnotationRemovable = v1alpha1.Prefix + "removable"
	// AnnotationAbandon on a WorkerPool that is being deleted skips draining: for a broker
	// that no longer exists.
	AnnotationAbandon = v1alpha1.Prefix + "abandon"
)

const (
	// maxNameLength leaves room for the hash that the StatefulSet controller appends in labels.
	maxNameLength = 52
	hashLength    = 10
	// maxLabelLength is the maximum length of a label's value.
	maxLabelLength = 63
)

// childObjectName returns "<owner>-<part>" as a DNS label. If the owner's name has to be changed
// for that, a hash of it is added, so that different owners get different names.
func childObjectName(owner, part string) string {
	prefix := strings.ReplaceAll(owner, ".", "-")
	room := maxNameLength - len(part) - 1
	startsWithLetter := prefix[0] >= 'a' && prefix[0] <= 'z' // as a Service's name must
	if prefix == owner && len(prefix) <= room && startsWithLetter {
		return prefix + "-" + part
	}
	if !startsWithLetter {
		prefix = "p" + prefix
	}
	suffix := "-" + decision.HexDigest([]byte(owner), hashLength/2)
	if room -= len(suffix); len(prefix) > room {
		prefix = prefix[:room]
	}
	return strings.TrimRight(prefix, "-") + suffix + "-" + part
}

// RevisionName returns the name of a revision's Deployment or StatefulSet.
func RevisionName(owner, hash string) string { return childObjectName(owner, hash) }

// sharedObjectName returns the name of the objects that all revisions use.
func sharedObjectName(owner string) string { return childObjectName(owner, "workers") }

// poolLabelValue is the value of LabelWorkerPool.
func poolLabelValue(owner string) string {
	if len(owner) <= maxLabelLength {
		return owner
	}
	suffix := "-" + decision.HexDigest([]byte(owner), hashLength)
	return strings.TrimRight(owner[:maxLabelLength-len(suffix)], "-.") + suffix
}

// WorkerSelector returns the labels that select a pool's workers.
func WorkerSelector(owner string) map[string]string {
	return map[string]string{LabelWorkerPool: poolLabelValue(owner)}
}

// HashJSON returns a short hash of a value's JSON form.
func HashJSON(value any) string { return decision.ContentHash(value, hashLength) }

// objectLabels returns the labels of all objects of a pool.
func objectLabels(owner string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, LabelWorkerPool: poolLabelValue(owner)}
}

// childMetadata returns the metadata of an object that the pool controls. The object does not
// block the pool's deletion, because the finalizer ensures the order.
func childMetadata(wp *v1alpha1.WorkerPool, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: wp.Namespace, Labels: objectLabels(wp.Name),
		OwnerReferences: decision.ControllerReferences("WorkerPool", wp),
	}
}
