package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Labels and annotations of what a session is made of.
const (
	// LabelSession carries the session's name, for people who select by it.
	LabelSession = v1alpha1.Prefix + "session"
	// LabelSessionUID carries its UID. It narrows what the operator caches, and selects the
	// Pods that the NetworkPolicy holds for; ownership itself is always read from the
	// controller reference.
	LabelSessionUID = v1alpha1.Prefix + "session-uid"

	// AnnotationRun and AnnotationAttempt on a Job say which attempt at which run it is.
	AnnotationRun     = v1alpha1.AnnotationRun
	AnnotationAttempt = v1alpha1.Prefix + "attempt"
	// AnnotationRunFinished on a Lease is the Job whose runner has finished what it was at.
	AnnotationRunFinished = v1alpha1.Prefix + "run-finished"
)

const (
	// maxNameLength is that of a label, which a Job's name becomes on its Pods.
	maxNameLength    = 63
	inputsHashLength = 10
	nameHashLength   = 6
)

// childObjectName is "<owner>-<part>". If the owner's name has to be cut for that, a hash of it
// keeps two apart that would become the same.
func childObjectName(owner, part string) string {
	if len(owner)+1+len(part) <= maxNameLength {
		return owner + "-" + part
	}
	mark := "-" + shortDigest([]byte(owner), nameHashLength)
	room := maxNameLength - len(mark) - 1 - len(part)
	return strings.TrimRight(owner[:room], "-") + mark + "-" + part
}

// jobName is the name of the Job for one attempt. It depends on nothing that changes, so
// that a pass which does not see the Job it made finds the name taken instead of making a
// twin.
func jobName(owner string, run, attempt int32) string {
	return childObjectName(owner, fmt.Sprintf("r%d-a%d", run, attempt))
}

// inputsNamePart is how the names of Secrets with inputs end, but for the hash.
const inputsNamePart = "inputs-"

var inputsNamePattern = regexp.MustCompile(`-` + inputsNamePart + `[0-9a-f]{10}$`)

// sharedName is the name of the ServiceAccount and the NetworkPolicy, and of the Role.
func sharedName(owner string) string { return childObjectName(owner, "session") }

// ClaimName is the name of a session's own PersistentVolumeClaim.
func ClaimName(owner string) string { return childObjectName(owner, "workspace") }

// ServiceName is the name of the Service of an interactive session.
func ServiceName(owner string) string { return owner }

// LeaseName is the name of the Lease that a runner renews.
func LeaseName(owner string) string { return owner }

// NetworkPolicyName is the name of a session's NetworkPolicy.
func NetworkPolicyName(owner string) string { return sharedName(owner) }

func shortDigest(raw []byte, chars int) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:chars]
}

// hashJSON is a short hash of a value's JSON form.
func hashJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%#v", value)
	}
	return shortDigest(raw, inputsHashLength)
}

// childLabels are on everything made for a session.
func childLabels(s *v1alpha1.AgenticSession) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
		LabelSession:            s.Name, // never longer than a label's value
		LabelSessionUID:         string(s.UID),
	}
}

// childMetadata of something made for a session, which is its controller. It does not block the
// session's deletion: nothing of it has to go before the session does.
func childMetadata(s *v1alpha1.AgenticSession, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: s.Namespace, Labels: childLabels(s),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgenticSession", Name: s.Name, UID: s.UID, Controller: new(true),
		}},
	}
}

// IsControlledBy reports whether the object's controller is this session.
func IsControlledBy(s *v1alpha1.AgenticSession, child metav1.Object) bool {
	controller := metav1.GetControllerOf(child)
	return controller != nil && controller.UID == s.UID
}

// WasCreatedFor reports whether an object found under one of our names was made for this session.
// A workspace that is to be kept has no owner: its label says whose it is.
func WasCreatedFor(s *v1alpha1.AgenticSession, child metav1.Object) bool {
	if metav1.GetControllerOf(child) != nil {
		return IsControlledBy(s, child)
	}
	return child.GetLabels()[LabelSessionUID] == string(s.UID)
}
