package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Labels and annotations of what a pool is made of.
const (
	// LabelWorkerPool carries the pool's name, cut to what a label holds. It selects the workers;
	// ownership itself is always read from the controller reference.
	LabelWorkerPool = v1alpha1.Prefix + "workerpool"
	// LabelRevision carries the hash of a worker's revision.
	LabelRevision = v1alpha1.Prefix + "revision"
	// AnnotationWorkerPool on a worker's Pod is the pool's name in full.
	AnnotationWorkerPool = v1alpha1.Prefix + "workerpool"
	// LabelAppVersion is the well-known one.
	LabelAppVersion = "app.kubernetes.io/version"

	// AnnotationRolloutHistory on a revision is what it has been through, in JSON.
	AnnotationRolloutHistory = v1alpha1.Prefix + "past"
	// AnnotationImage on a revision is that of its worker, for people.
	AnnotationImage = v1alpha1.Prefix + "image"
	// AnnotationDraining, AnnotationIdle and AnnotationLeaving on a Pod are where it stands
	// on its way out, as times.
	AnnotationDraining  = v1alpha1.Prefix + "draining"
	AnnotationIdle      = v1alpha1.Prefix + "idle"
	AnnotationRemovable = v1alpha1.Prefix + "leaving"
	// AnnotationAbandon on a WorkerPool that is being deleted gives up on draining: for when
	// its broker is gone for good.
	AnnotationAbandon = v1alpha1.Prefix + "abandon"
)

const (
	// maxNameLength leaves a StatefulSet's name room for the hash that its Pods' labels add.
	maxNameLength = 52
	hashLength    = 10
	// maxLabelLength is what a label's value can hold.
	maxLabelLength = 63
)

// childObjectName is "<owner>-<part>", a DNS label. If the owner's name has to be changed for
// that, a hash of it keeps two apart that would become the same.
func childObjectName(owner, part string) string {
	prefix := strings.ReplaceAll(owner, ".", "-")
	room := maxNameLength - len(part) - 1
	letter := prefix[0] >= 'a' && prefix[0] <= 'z' // a Service's name begins with one
	if prefix == owner && len(prefix) <= room && letter {
		return prefix + "-" + part
	}
	if !letter {
		prefix = "p" + prefix
	}
	mark := "-" + hexDigest([]byte(owner), hashLength/2)
	if room -= len(mark); len(prefix) > room {
		prefix = prefix[:room]
	}
	return strings.TrimRight(prefix, "-") + mark + "-" + part
}

// RevisionName is the name of a revision's Deployment or StatefulSet.
func RevisionName(owner, hash string) string { return childObjectName(owner, hash) }

// sharedObjectName is the name of all else that the pool is made of.
func sharedObjectName(owner string) string { return childObjectName(owner, "workers") }

// poolLabelValue is the value of LabelPool.
func poolLabelValue(owner string) string {
	if len(owner) <= maxLabelLength {
		return owner
	}
	mark := "-" + hexDigest([]byte(owner), hashLength)
	return strings.TrimRight(owner[:maxLabelLength-len(mark)], "-.") + mark
}

// WorkerSelector of a pool's workers.
func WorkerSelector(owner string) map[string]string {
	return map[string]string{LabelWorkerPool: poolLabelValue(owner)}
}

// HashJSON is a short hash of a value's JSON form.
func HashJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%#v", value)
	}
	return hexDigest(raw, hashLength)
}

func hexDigest(raw []byte, chars int) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:chars]
}

// objectLabels are on everything made for a pool.
func objectLabels(owner string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, LabelWorkerPool: poolLabelValue(owner)}
}

// childMetadata of something made for a pool, which is its controller. It does not block the
// pool's deletion: the finalizer sees to the order.
func childMetadata(wp *v1alpha1.WorkerPool, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: wp.Namespace, Labels: objectLabels(wp.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkerPool", Name: wp.Name, UID: wp.UID, Controller: new(true),
		}},
	}
}

// IsControllerOf reports whether the object's controller is this pool.
func IsControllerOf(wp *v1alpha1.WorkerPool, child metav1.Object) bool {
	controller := metav1.GetControllerOf(child)
	return controller != nil && controller.UID == wp.UID
}
